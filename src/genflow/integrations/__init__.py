"""What is put into other programs so that genflow keeps its promises there. Each folder stands alone."""
