// Many files include this and use nothing of it. What needs the driver meets a name that is not declared, see unsupported.py.
