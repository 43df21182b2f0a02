"""What people look at: the charts, the words, and the page that has them all."""
