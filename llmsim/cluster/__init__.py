"""What stands around the engines: arrivals, routing, and the fleet of replicas."""
