"""The work of one broker by the map: it opens and closes copies, joins groups, and hands leaderships over."""
