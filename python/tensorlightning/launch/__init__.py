"""tlrun: starts the workers of a job on this machine or on several, watches them, ends them all.

    main.py        what happens when a person types tlrun
    options.py     the command line
    hosts.py       which hosts, with how many slots each
    addresses.py   how other hosts reach the first one
    job.py         which rank runs where, and with which environment
    conductor.py   tlrun's side of a run: starts, restarts and ends the workers through agents
    aggregation.py where the aggregator is, and starting it
    link.py        one agent as tlrun sees it: a child process, perhaps behind ssh
    agent.py       the other side: one small program per host that owns its workers
    watched.py     one process as an agent watches it: its lines, its reports, its end
    outbox.py      what an agent still has to send, fair to all of its workers
    processes.py   processes and all their descendants: starting, finding, ending them
    protocol.py    the messages between tlrun and its agents
    programs.py    where tl-aggregator is
    display.py     what a person sees while it runs; live_display.py: on a terminal
    summary.py     what a person sees at the end; figures.py: reports as text

Nothing here imports TensorFlow; agent.py and what it imports need the standard library only.
"""
