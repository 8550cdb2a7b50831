"""A stream's replica, and the API requests that its leader answers."""
