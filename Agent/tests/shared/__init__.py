"""What tests of shared trees need: a log in memory, a server and a network of their own, and storms."""
