"""What the repository's commands are made of; nothing here is part of the product."""
