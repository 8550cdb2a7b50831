"""Lost, drained and surplus replicas, and their replacements."""
