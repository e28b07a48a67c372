"""Who is waited for and what has come: the simulator's post and a peer's mailbox."""
