"""Who is waited for and what has come: the mail of the simulator, and the mailbox and pace of a peer."""
