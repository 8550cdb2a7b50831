"""`supercluster users`: Users and their credentials, from the command line (CL-5)."""
