"""The methods that change a tree, take it back and look after it, one by one and in any order."""
