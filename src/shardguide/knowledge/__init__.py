"""What is known, as data with its sources; reads nothing of the user's."""
