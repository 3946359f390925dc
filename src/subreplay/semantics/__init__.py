"""What brokers do: policies, each in one file, and the timelines that they make of a membership."""
