"""Access to the console: users, roles, sessions and protection of forms."""
