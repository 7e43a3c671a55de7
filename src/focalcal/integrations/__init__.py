"""focalcal inside other libraries; each module here imports its library, so import the one you need."""
