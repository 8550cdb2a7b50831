"""What one broker does by the map: opens and closes copies, joins, hands leaderships over."""
