"""What is saved and loaded, seen from outside: a program that watches folders, and its rules."""
