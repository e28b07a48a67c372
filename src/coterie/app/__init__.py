"""What people see: the command line, its flags, progress, views."""
