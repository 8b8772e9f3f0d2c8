package org.apache.kafka.metadata.authorizer;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletionStage;
import java.util.stream.Collectors;
import org.apache.kafka.common.Endpoint;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.server.authorizer.AclCreateResult;
import org.apache.kafka.server.authorizer.AclDeleteResult;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.authorizer.AuthorizerServerInfo;

/** Answers questions, one a line of fields between tabs, as Kafka's StandardAuthorizer does. */
public class AnswerQuestions {
    static StandardAuthorizerData data;

    record Client(KafkaPrincipal principal, InetAddress clientAddress)
            implements AuthorizableRequestContext {
        public String listenerName() { return "L"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        public int requestType() { return 0; }
        public int requestVersion() { return 0; }
        public String clientId() { return "c"; }
        public int correlationId() { return 0; }
    }

    static class Asked implements Authorizer {
        public Map<Endpoint, ? extends CompletionStage<Void>> start(AuthorizerServerInfo info) {
            return Map.of();
        }
        public List<AuthorizationResult> authorize(
                AuthorizableRequestContext client, List<Action> actions) {
            return actions.stream().map(one -> data.authorize(client, one))
                .collect(Collectors.toList());
        }
        public List<? extends CompletionStage<AclCreateResult>> createAcls(
                AuthorizableRequestContext client, List<AclBinding> acls) { return List.of(); }
        public List<? extends CompletionStage<AclDeleteResult>> deleteAcls(
                AuthorizableRequestContext client, List<AclBindingFilter> filters) {
            return List.of();
        }
        public Iterable<AclBinding> acls(AclBindingFilter filter) { return data.acls(filter); }
        public void configure(Map<String, ?> configs) { }
        public void close() { }
    }

    static Client client(String principal, String host) throws Exception {
        int colon = principal.indexOf(':');
        return new Client(
            new KafkaPrincipal(principal.substring(0, colon), principal.substring(colon + 1)),
            InetAddress.getByName(host));
    }

    public static void main(String[] arguments) throws Exception {
        Asked asked = new Asked();
        BufferedReader lines = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StringBuilder answers = new StringBuilder();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] part = line.split("\t", -1);
            AuthorizationResult result;
            switch (part[0]) {
                case "rules":
                    data = StandardAuthorizerData.createEmpty().copyWithNewConfig(
                        1, Set.of("User:root"),
                        part[1].equals("1") ? AuthorizationResult.ALLOWED
                            : AuthorizationResult.DENIED).copyWithNewLoadingComplete(true);
                    continue;
                case "entry":
                    data.addAcl(Uuid.randomUuid(), new StandardAcl(
                        ResourceType.fromCode(Byte.parseByte(part[1])), part[2],
                        PatternType.fromCode(Byte.parseByte(part[3])), part[4], part[5],
                        AclOperation.fromCode(Byte.parseByte(part[6])),
                        AclPermissionType.fromCode(Byte.parseByte(part[7]))));
                    continue;
                case "resource":
                    result = data.authorize(client(part[1], part[2]), new Action(
                        AclOperation.fromCode(Byte.parseByte(part[3])),
                        new ResourcePattern(ResourceType.fromCode(Byte.parseByte(part[4])),
                            part[5], PatternType.LITERAL), 1, false, false));
                    break;
                case "somewhere":
                    result = asked.authorizeByResourceType(client(part[1], part[2]),
                        AclOperation.fromCode(Byte.parseByte(part[3])),
                        ResourceType.fromCode(Byte.parseByte(part[4])));
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
            answers.append(result == AuthorizationResult.ALLOWED ? "1" : "0").append("\n");
        }
        System.out.print(answers);
    }
}
