"""What clients (KIP-714) and nodes report: counted, kept for a while, sent on."""
