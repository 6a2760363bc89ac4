"""One file a kind of page: `pages(site)` yields what it has; `NAVIGATION` lists its links in the bar at the top."""
