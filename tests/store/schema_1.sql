CREATE TABLE migration (
    version INTEGER NOT NULL,
    applied_at VARCHAR NOT NULL,
    PRIMARY KEY (version)
);
CREATE TABLE device (
    id VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    arch VARCHAR NOT NULL,
    multiprocessors INTEGER NOT NULL,
    memory_bytes INTEGER NOT NULL,
    l2_bytes INTEGER NOT NULL,
    driver VARCHAR NOT NULL,
    runtime VARCHAR NOT NULL,
    PRIMARY KEY (id)
);
CREATE TABLE ceilings (
    id VARCHAR NOT NULL,
    device_id VARCHAR NOT NULL,
    measured_at VARCHAR NOT NULL,
    copy_bytes_per_s FLOAT NOT NULL,
    read_bytes_per_s FLOAT NOT NULL,
    write_bytes_per_s FLOAT NOT NULL,
    l2_copy_bytes_per_s FLOAT NOT NULL,
    fp32_flops FLOAT NOT NULL,
    tf32_flops FLOAT NOT NULL,
    bf16_flops FLOAT NOT NULL,
    fp64_flops FLOAT NOT NULL,
    launch_ns FLOAT NOT NULL,
    graph_node_ns FLOAT NOT NULL,
    sm_clock_mhz FLOAT,
    PRIMARY KEY (id),
    FOREIGN KEY(device_id) REFERENCES device (id)
);
CREATE INDEX ix_ceilings_device_id ON ceilings (device_id);
CREATE TABLE task (
    id VARCHAR NOT NULL,
    operator VARCHAR NOT NULL,
    precision VARCHAR NOT NULL,
    title VARCHAR NOT NULL,
    scenario VARCHAR NOT NULL,
    definition VARCHAR NOT NULL,
    compute VARCHAR NOT NULL,
    bound_note VARCHAR NOT NULL,
    library_note VARCHAR NOT NULL,
    prototype VARCHAR NOT NULL,
    described_at VARCHAR NOT NULL,
    PRIMARY KEY (id)
);
CREATE INDEX ix_task_operator ON task (operator);
CREATE TABLE "case" (
    id VARCHAR NOT NULL,
    task_id VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    split VARCHAR NOT NULL,
    distribution VARCHAR NOT NULL,
    dims JSON NOT NULL,
    scalars JSON NOT NULL,
    nbytes INTEGER NOT NULL,
    flops INTEGER NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(task_id) REFERENCES task (id)
);
CREATE INDEX ix_case_task_id ON "case" (task_id);
CREATE TABLE version (
    id VARCHAR NOT NULL,
    task_id VARCHAR NOT NULL,
    origin VARCHAR NOT NULL,
    label VARCHAR NOT NULL,
    source VARCHAR NOT NULL,
    created_at VARCHAR NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(task_id) REFERENCES task (id)
);
CREATE INDEX ix_version_task_id ON version (task_id);
CREATE TABLE lineage (
    version_id VARCHAR NOT NULL,
    parent_id VARCHAR NOT NULL,
    PRIMARY KEY (version_id, parent_id),
    FOREIGN KEY(version_id) REFERENCES version (id)
);
CREATE TABLE build (
    id VARCHAR NOT NULL,
    version_id VARCHAR NOT NULL,
    toolchain VARCHAR NOT NULL,
    flags JSON NOT NULL,
    seconds FLOAT NOT NULL,
    log VARCHAR NOT NULL,
    kernels JSON NOT NULL,
    sass JSON,
    fault VARCHAR,
    message VARCHAR,
    PRIMARY KEY (id),
    FOREIGN KEY(version_id) REFERENCES version (id)
);
CREATE INDEX ix_build_version_id ON build (version_id);
CREATE TABLE evaluation (
    id VARCHAR NOT NULL,
    version_id VARCHAR NOT NULL,
    device_id VARCHAR NOT NULL,
    unit VARCHAR NOT NULL,
    host VARCHAR NOT NULL,
    executor VARCHAR NOT NULL,
    status VARCHAR NOT NULL,
    started_at VARCHAR NOT NULL,
    seconds FLOAT NOT NULL,
    command VARCHAR NOT NULL,
    seed INTEGER NOT NULL,
    harness VARCHAR NOT NULL,
    build_id VARCHAR,
    recorded_from VARCHAR,
    note VARCHAR NOT NULL,
    fault VARCHAR,
    message VARCHAR,
    log VARCHAR,
    PRIMARY KEY (id),
    FOREIGN KEY(version_id) REFERENCES version (id),
    FOREIGN KEY(device_id) REFERENCES device (id),
    FOREIGN KEY(build_id) REFERENCES build (id)
);
CREATE INDEX ix_evaluation_version_id ON evaluation (version_id);
CREATE TABLE "check" (
    id VARCHAR NOT NULL,
    evaluation_id VARCHAR NOT NULL,
    case_id VARCHAR NOT NULL,
    variant VARCHAR NOT NULL,
    seed INTEGER NOT NULL,
    passed BOOLEAN NOT NULL,
    worst FLOAT,
    max_abs_error FLOAT,
    bitwise_repeatable BOOLEAN,
    fault VARCHAR,
    message VARCHAR,
    PRIMARY KEY (id),
    FOREIGN KEY(evaluation_id) REFERENCES evaluation (id),
    FOREIGN KEY(case_id) REFERENCES "case" (id)
);
CREATE INDEX ix_check_evaluation_id ON "check" (evaluation_id);
CREATE TABLE measurement (
    id VARCHAR NOT NULL,
    evaluation_id VARCHAR NOT NULL,
    case_id VARCHAR NOT NULL,
    group_id VARCHAR NOT NULL,
    seed INTEGER NOT NULL,
    sittings INTEGER NOT NULL,
    rounds INTEGER NOT NULL,
    median_ns FLOAT,
    hot_ns FLOAT,
    host_ns FLOAT,
    floor_ns FLOAT,
    noisy BOOLEAN NOT NULL,
    hot_note VARCHAR NOT NULL,
    sm_clock_mhz FLOAT,
    temperature_c FLOAT,
    power_w FLOAT,
    throttle VARCHAR,
    samples BLOB NOT NULL,
    fault VARCHAR,
    message VARCHAR,
    PRIMARY KEY (id),
    FOREIGN KEY(evaluation_id) REFERENCES evaluation (id),
    FOREIGN KEY(case_id) REFERENCES "case" (id)
);
CREATE INDEX ix_measurement_case_id ON measurement (case_id);
CREATE INDEX ix_measurement_evaluation_id ON measurement (evaluation_id);
CREATE INDEX ix_measurement_group_id ON measurement (group_id);
CREATE TABLE profile (
    id VARCHAR NOT NULL,
    evaluation_id VARCHAR NOT NULL,
    case_id VARCHAR NOT NULL,
    source VARCHAR NOT NULL,
    tool VARCHAR NOT NULL,
    metrics JSON NOT NULL,
    kernels JSON NOT NULL,
    bottleneck VARCHAR NOT NULL,
    evidence JSON NOT NULL,
    fault VARCHAR,
    message VARCHAR,
    PRIMARY KEY (id),
    FOREIGN KEY(evaluation_id) REFERENCES evaluation (id),
    FOREIGN KEY(case_id) REFERENCES "case" (id)
);
CREATE INDEX ix_profile_evaluation_id ON profile (evaluation_id);
CREATE TABLE run (
    id VARCHAR NOT NULL,
    task_id VARCHAR NOT NULL,
    strategy VARCHAR NOT NULL,
    provider VARCHAR NOT NULL,
    model VARCHAR NOT NULL,
    executor VARCHAR NOT NULL,
    device_id VARCHAR,
    seed INTEGER NOT NULL,
    budget JSON NOT NULL,
    spend JSON NOT NULL,
    settings JSON NOT NULL,
    status VARCHAR NOT NULL,
    note VARCHAR NOT NULL,
    command VARCHAR NOT NULL,
    started_at VARCHAR NOT NULL,
    finished_at VARCHAR,
    replay_of VARCHAR,
    best_version_id VARCHAR,
    PRIMARY KEY (id),
    FOREIGN KEY(task_id) REFERENCES task (id),
    FOREIGN KEY(device_id) REFERENCES device (id),
    FOREIGN KEY(best_version_id) REFERENCES version (id)
);
CREATE INDEX ix_run_task_id ON run (task_id);
CREATE TABLE step (
    id VARCHAR NOT NULL,
    run_id VARCHAR NOT NULL,
    number INTEGER NOT NULL,
    parent_version_id VARCHAR,
    version_id VARCHAR,
    evaluation_id VARCHAR,
    action VARCHAR NOT NULL,
    "plan" VARCHAR NOT NULL,
    hypothesis VARCHAR NOT NULL,
    predicted_speedup FLOAT,
    speedup FLOAT,
    outcome VARCHAR NOT NULL,
    held BOOLEAN,
    lesson VARCHAR NOT NULL,
    started_at VARCHAR NOT NULL,
    finished_at VARCHAR NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (run_id, number),
    FOREIGN KEY(run_id) REFERENCES run (id),
    FOREIGN KEY(parent_version_id) REFERENCES version (id),
    FOREIGN KEY(version_id) REFERENCES version (id),
    FOREIGN KEY(evaluation_id) REFERENCES evaluation (id)
);
CREATE INDEX ix_step_run_id ON step (run_id);
CREATE TABLE message (
    id VARCHAR NOT NULL,
    previous_id VARCHAR,
    role VARCHAR NOT NULL,
    agent VARCHAR NOT NULL,
    content VARCHAR NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(previous_id) REFERENCES message (id)
);
CREATE TABLE call (
    id VARCHAR NOT NULL,
    run_id VARCHAR NOT NULL,
    step_number INTEGER NOT NULL,
    number INTEGER NOT NULL,
    agent VARCHAR NOT NULL,
    prompt_id VARCHAR NOT NULL,
    reply_id VARCHAR NOT NULL,
    model VARCHAR NOT NULL,
    prompt_tokens INTEGER,
    completion_tokens INTEGER,
    cost_usd FLOAT,
    seconds FLOAT NOT NULL,
    created_at VARCHAR NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (run_id, number),
    FOREIGN KEY(run_id) REFERENCES run (id),
    FOREIGN KEY(prompt_id) REFERENCES message (id),
    FOREIGN KEY(reply_id) REFERENCES message (id)
);
CREATE INDEX ix_call_run_id ON call (run_id);
CREATE VIEW timing AS
SELECT t.operator, t.precision, t.id AS task_id, c.id AS case_id, c.name AS case_name, c.split,
       v.id AS version_id, v.origin, v.label, e.id AS evaluation_id, e.started_at AS measured_at,
       d.id AS device_id, d.name AS device, m.group_id, m.median_ns, m.hot_ns, m.host_ns, m.noisy,
       c.nbytes / m.median_ns AS gb_per_s, c.flops / m.median_ns AS gflop_per_s
FROM measurement m
JOIN evaluation e ON e.id = m.evaluation_id
JOIN version v ON v.id = e.version_id
JOIN task t ON t.id = v.task_id
JOIN "case" c ON c.id = m.case_id
JOIN device d ON d.id = e.device_id
WHERE m.fault IS NULL AND m.median_ns IS NOT NULL AND e.recorded_from IS NULL
  AND e.status IN ('passed', 'measure_failed', 'profile_failed');
CREATE VIEW speedup AS
SELECT a.operator, a.precision, a.task_id, a.case_id, a.case_name, a.split, a.device_id, a.device, a.group_id,
       a.measured_at, a.version_id, a.origin, a.label, a.median_ns,
       b.version_id AS reference_id, b.origin AS reference_origin, b.label AS reference_label,
       b.median_ns AS reference_ns, b.median_ns / a.median_ns AS ratio
FROM timing a
JOIN timing b ON b.group_id = a.group_id AND b.case_id = a.case_id AND b.device_id = a.device_id
             AND b.version_id <> a.version_id;
