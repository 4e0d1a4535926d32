"""What can be seen of attention: selections, maps, statistics, rollout."""
