"""Pages of security: users with SCRAM credentials, and ACLs. Passwords can be set on these pages
and are never shown."""

from collections.abc import Mapping, Sequence

from ottla.client.admin_parts.admin_users import ITERATIONS_DEFAULT, UserCredential
from ottla.console.absences import Absence, NeededRight, attempt
from ottla.console.links import address
from ottla.console.page_types import Action, Page, PageRequest, PageView, UserRole
from ottla.console.sheets import (
    Column,
    FormField,
    FormPart,
    LinksPart,
    ListColumn,
    NotePart,
    SheetPart,
    TablePart,
    badge,
    code,
    list_table,
    plain_table,
    sheet_view,
    text,
)
from ottla.insight.rules.acl_text import OPERATION_NAMES, operation_named, principal_of, word_of
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.security.acls import (
    CLUSTER_NAME,
    WILDCARD,
    AclEntry,
    AclFilter,
    AclPermission,
    PatternType,
    ResourceType,
)
from ottla.model.security.scram import SCRAM_BY_NAME

READS_USERS = NeededRight(operation="describe")
READS_ACLS = NeededRight(operation="describe")
NAME_CHARS_MAX = 32_767
RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "cluster": ResourceType.CLUSTER,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "delegation-token": ResourceType.DELEGATION_TOKEN,
    "user": ResourceType.USER,
}


async def users(request: PageRequest) -> PageView:
    """Return the page that lists all users with SCRAM credentials."""
    found = await attempt("users", request.admin.describe_users(), READS_USERS)
    parts: list[SheetPart] = [security_links("Users")]
    if isinstance(found, Absence):
        return sheet_view("Users", [*parts, found.part(request.user)])
    parts += [
        list_table(
            "Users",
            found.items(),
            request.query,
            USER_COLUMNS,
            text_of=lambda one: one[0],
            empty="No user has a SCRAM credential: clients log in another way, or not at all.",
            empty_command="ottla user add NAME",
            search_label="Search users",
        ),
        _password_form(),
    ]
    return sheet_view(
        "Users",
        parts,
        lead="Users that log in by client certificates or tokens are not in this list.",
    )


async def user(request: PageRequest) -> PageView:
    """Return the page that shows one user's credentials and ACLs."""
    name = request.path["user"]
    credentials = await attempt("users", request.admin.describe_users(), READS_USERS)
    acls = await attempt(
        "ACLs", request.admin.describe_acls(AclFilter(principal=f"User:{name}")), READS_ACLS
    )
    parts: list[SheetPart] = [security_links("Users")]
    if isinstance(credentials, Absence):
        parts.append(credentials.part(request.user))
    else:
        parts.append(_credentials(name, credentials.get(name, ())))
    if isinstance(acls, Absence):
        parts.append(acls.part(request.user))
    else:
        parts.append(_acl_table(acls, request, f"ACLs of {name}"))
    parts += [_password_form(name), _deletion(name)]
    return sheet_view(name, parts, command=f"ottla acl list --principal {name}")


async def acls(request: PageRequest) -> PageView:
    """Return the page that lists all ACLs."""
    found = await attempt("ACLs", request.admin.describe_acls(AclFilter()), READS_ACLS)
    parts: list[SheetPart] = [security_links("ACLs")]
    if isinstance(found, Absence):
        return sheet_view("ACLs", [*parts, found.part(request.user)])
    parts += [_acl_table(found, request, "ACLs"), _acl_form()]
    return sheet_view("ACLs", parts)


async def set_password(request: PageRequest) -> PageView:
    """Set the SCRAM password of a user. The console sends a salted hash to the cluster, not the
    password. Returns a redirect to the page of the user."""
    name = request.path.get("user", "") or request.form.get("user", "").strip()
    password = request.form.get("password", "")
    mechanism = request.form.get("mechanism", "")
    if not name:
        raise ConfigError("user", "is missing")
    if not password:
        raise ConfigError("password", "is missing")
    if mechanism not in SCRAM_BY_NAME:
        raise ConfigError("mechanism", f"must be one of {', '.join(SCRAM_BY_NAME)}")
    await request.admin.set_password(name, mechanism, password, iterations=ITERATIONS_DEFAULT)
    return PageView(
        context={},
        location=user_address(name),
        notice=f"The {mechanism} password of user {name} was set.",
    )


async def delete_user(request: PageRequest) -> PageView:
    """Delete all SCRAM credentials of a user. Returns a redirect to the list of users."""
    name = request.path["user"]
    found = (await request.admin.describe_users()).get(name, [])
    if not found:
        raise RefusedError(ErrorCode.RESOURCE_NOT_FOUND, f"user {name!r} has no credential")
    for one in found:
        await request.admin.delete_password(name, one.mechanism)
    return PageView(
        context={}, location="/users", notice=f"The credentials of user {name} were deleted."
    )


async def create_acl(request: PageRequest) -> PageView:
    """Create the ACL that the form describes. Returns a redirect to the list of ACLs of the
    principal."""
    entry = entry_of(request.form)
    await request.admin.create_acls([entry])
    return PageView(
        context={},
        location=address("/acls", {}, {"q": entry.principal}),
        notice="The ACL was created.",
    )


async def delete_acl(request: PageRequest) -> PageView:
    """Delete one ACL, which the form describes in full. Returns a redirect to the list of ACLs."""
    entry = entry_of(request.form)
    unwanted = AclFilter(
        resource_type=entry.resource_type,
        resource_name=entry.resource_name,
        pattern_type=entry.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission=entry.permission,
    )
    gone = await request.admin.delete_acls(unwanted)
    if not gone:
        raise RefusedError(ErrorCode.RESOURCE_NOT_FOUND, "there is no such ACL any longer")
    return PageView(context={}, location="/acls", notice="The ACL was deleted.")


async def acl(request: PageRequest) -> PageView:
    """Return the page that shows one ACL and has a form to delete it."""
    entry = entry_of(request.query)
    form = FormPart(
        title="Delete this ACL",
        button="Delete",
        action="acl-delete",
        values={"principal": entry.principal},
        fields=tuple(
            FormField(name=name, label="", type="hidden", value=value)
            for name, value in acl_fields(entry).items()
        ),
    )
    parts: list[SheetPart] = [
        security_links("ACLs"),
        plain_table("ACL", [entry], ACL_COLUMNS[:-1]),
        form,
    ]
    return sheet_view(f"ACL of {entry.principal}", parts)


def user_address(name: str) -> str:
    """Return the address of the page that shows a user."""
    return address("/users/{user}", {"user": name})


def acl_fields(entry: AclEntry) -> dict[str, str]:
    """Return an ACL as the fields of a form."""
    kinds = {kind: name for name, kind in RESOURCES.items()}
    return {
        "principal": entry.principal,
        "permission": entry.permission.name.lower(),
        "operation": word_of(entry.operation),
        "resource": kinds.get(entry.resource_type, ""),
        "name": entry.resource_name,
        "pattern": entry.pattern_type.name.lower(),
        "host": entry.host,
    }


def entry_of(fields: Mapping[str, str]) -> AclEntry:
    """Return the ACL in the fields of a form. Raises ConfigError if a field is invalid."""
    resource = RESOURCES.get(fields.get("resource", ""))
    operation = operation_named(fields.get("operation", ""))
    name = fields.get("name", "")
    if resource is None:
        raise ConfigError("resource", f"must be one of {', '.join(RESOURCES)}")
    if operation is None:
        raise ConfigError("operation", f"must be one of {', '.join(OPERATION_NAMES)}")
    if fields.get("permission") not in ("allow", "deny"):
        raise ConfigError("permission", "must be allow or deny")
    if fields.get("pattern", "literal") not in ("literal", "prefixed"):
        raise ConfigError("pattern", "must be literal or prefixed")
    if resource is ResourceType.CLUSTER:
        name = CLUSTER_NAME
    if not name or len(name) > NAME_CHARS_MAX:
        raise ConfigError(
            "name", f"is missing or too long; {WILDCARD} is every {fields['resource']}"
        )
    return AclEntry(
        resource_type=resource,
        resource_name=name,
        pattern_type=PatternType[fields.get("pattern", "literal").upper()],
        principal=principal_of(fields.get("principal", "").strip()),
        host=fields.get("host", "").strip() or WILDCARD,
        operation=operation,
        permission=AclPermission[fields["permission"].upper()],
    )


def acl_text(entry: AclEntry) -> str:
    """Return the text of an ACL that the search of the list examines."""
    return " ".join(acl_fields(entry).values())


ACL_COLUMNS: tuple[ListColumn[AclEntry], ...] = (
    ListColumn(
        title="Principal",
        key="principal",
        cell=lambda one: code(one.principal),
        order=lambda one: (one.principal, one),
    ),
    ListColumn(
        title="Permission",
        key="permission",
        cell=lambda one: badge(
            acl_fields(one)["permission"],
            "good" if one.permission is AclPermission.ALLOW else "bad",
        ),
        order=lambda one: (one.permission, one),
    ),
    ListColumn(
        title="Operation",
        key="operation",
        cell=lambda one: text(acl_fields(one)["operation"]),
        order=lambda one: (one.operation, one),
    ),
    ListColumn(
        title="Resource",
        key="resource",
        cell=lambda one: text(acl_fields(one)["resource"] or one.resource_type.name.lower()),
        order=lambda one: (one.resource_type, one),
    ),
    ListColumn(
        title="Name",
        key="name",
        cell=lambda one: code(one.resource_name),
        order=lambda one: (one.resource_name, one),
    ),
    ListColumn(title="Pattern", cell=lambda one: text(acl_fields(one)["pattern"])),
    ListColumn(
        title="Host",
        cell=lambda one: text("every host" if one.host == WILDCARD else one.host),
    ),
    ListColumn(
        title="Deletion",
        cell=lambda one: text("delete", address("/acl", {}, acl_fields(one))),
    ),
)


def _acl_table(acls: Sequence[AclEntry], request: PageRequest, title: str) -> TablePart:
    return list_table(
        title,
        acls,
        request.query,
        ACL_COLUMNS,
        text_of=acl_text,
        empty="There are no ACLs: without an authorizer every client may do everything, with one "
        "only super users may.",
        empty_command="ottla acl create --allow USER --operation read --topic TOPIC",
        search_label="Search ACLs",
    )


def _credential_text(credentials: Sequence[UserCredential]) -> str:
    return ", ".join(f"{one.mechanism} ({one.iterations:,} iterations)" for one in credentials)


USER_COLUMNS: tuple[ListColumn[tuple[str, Sequence[UserCredential]]], ...] = (
    ListColumn(title="User", key="user", cell=lambda one: code(one[0], user_address(one[0]))),
    ListColumn(title="Credentials", cell=lambda one: text(_credential_text(one[1]))),
    ListColumn(
        title="ACLs",
        cell=lambda one: text("ACLs", address("/acls", {}, {"q": f"User:{one[0]}"})),
    ),
    ListColumn(
        title="Why is it denied?",
        cell=lambda one: text("explain", address("/explain/denial", {}, {"user": one[0]})),
    ),
)


def _credentials(name: str, found: Sequence[UserCredential]) -> SheetPart:
    if not found:
        return NotePart(text=f"User {name} has no SCRAM credential.")
    return TablePart(
        title="Credentials",
        columns=(Column(title="Mechanism"), Column(title="Iterations", is_number=True)),
        rows=tuple((text(one.mechanism), text(f"{one.iterations:,}")) for one in found),
    )


def _password_form(name: str = "") -> FormPart:
    """Return the form that sets a password. The user is `name`, or is entered in the form if `name`
    is empty.

    The name of an existing user is in the form's address. In a field, invisible characters would be
    replaced by escapes, which would create another user. In this case the form has a field without
    a name, which is not sent; password managers store its value as the user name.
    """
    user = FormField(name="user", label="User", is_required=True)
    known_user = FormField(name="", label="", type="username", value=name)
    privacy = "The password itself is not sent to the cluster."
    return FormPart(
        title="Set a password",
        button="Set the password",
        action="user-password-renew" if name else "user-password",
        values={"user": name} if name else {},
        hint=privacy if name else f"A new user is created. {privacy}",
        fields=(
            known_user if name else user,
            FormField(
                name="mechanism",
                label="Mechanism",
                type="select",
                value="SCRAM-SHA-512",
                options=tuple((one, one) for one in SCRAM_BY_NAME),
            ),
            FormField(name="password", label="Password", type="password", is_required=True),
        ),
    )


def _deletion(name: str) -> FormPart:
    return FormPart(
        title="Delete the credentials",
        button="Delete all credentials",
        action="user-delete",
        values={"user": name},
        hint="The user cannot log in afterwards. Its ACLs stay.",
    )


def _acl_form() -> FormPart:
    names = tuple((one, one) for one in OPERATION_NAMES)
    return FormPart(
        title="Create an ACL",
        button="Create",
        action="acl-create",
        fields=(
            FormField(name="principal", label="User", hint="or Type:name", is_required=True),
            FormField(
                name="permission",
                label="Permission",
                type="select",
                options=(("allow", "allow"), ("deny", "deny")),
            ),
            FormField(name="operation", label="Operation", type="select", options=names),
            FormField(
                name="resource",
                label="Resource",
                type="select",
                options=tuple((one, one) for one in RESOURCES),
            ),
            FormField(name="name", label="Name", hint=f"{WILDCARD} for all; not for the cluster"),
            FormField(
                name="pattern",
                label="Pattern",
                type="select",
                options=(("literal", "whole name"), ("prefixed", "start of names")),
            ),
            FormField(name="host", label="Host", hint="address of the client; empty for all"),
        ),
    )


def security_links(current: str) -> LinksPart:
    """Return the links between the pages of security. `current` is the text of the present page's
    link."""
    return LinksPart(
        links=(
            ("Users", "/users"),
            ("ACLs", "/acls"),
            ("Tokens", "/tokens"),
            ("Certificates", "/certificates"),
            ("Why is a client denied?", "/explain/denial"),
        ),
        current=current,
    )


PAGES = (
    Page(
        name="users",
        path="/users",
        title="Users",
        command="ottla user list",
        view=users,
        section="Security",
        key="s",
        actions=(
            Action(
                name="user-password",
                path="/users-password",
                command="ottla user add {user}",
                run=set_password,
                role=UserRole.ADMIN,
            ),
        ),
    ),
    Page(
        name="user",
        path="/users/{user}",
        title="User",
        command="ottla acl list --principal {user}",
        view=user,
        actions=(
            Action(
                name="user-password-renew",
                path="/users/{user}/password",
                command="ottla user add {user}",
                run=set_password,
                role=UserRole.ADMIN,
            ),
            Action(
                name="user-delete",
                path="/users/{user}/delete",
                command="ottla user delete {user}",
                run=delete_user,
                role=UserRole.ADMIN,
                confirms="user",
            ),
        ),
    ),
    Page(
        name="acls",
        path="/acls",
        title="ACLs",
        command="ottla acl list",
        view=acls,
        section="Security",
        key="a",
        actions=(
            Action(
                name="acl-create",
                path="/acls",
                command="ottla acl create",
                run=create_acl,
                role=UserRole.ADMIN,
            ),
        ),
    ),
    Page(
        name="acl",
        path="/acl",
        title="ACL",
        command="ottla acl list",
        view=acl,
        actions=(
            Action(
                name="acl-delete",
                path="/acls/{principal}/delete",
                command="ottla acl delete",
                run=delete_acl,
                role=UserRole.ADMIN,
                confirms="principal",
            ),
        ),
    ),
)
