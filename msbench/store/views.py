"""SQL views for people with a database browser: point estimates without intervals, documented in docs/database.md."""

TIMING = """
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
  AND e.status IN ('passed', 'measure_failed', 'profile_failed')
"""
"""Every time of a version that passed its checks, with names in place of ids."""

SPEEDUP = """
CREATE VIEW speedup AS
SELECT a.operator, a.precision, a.task_id, a.case_id, a.case_name, a.split, a.device_id, a.device, a.group_id,
       a.measured_at, a.version_id, a.origin, a.label, a.median_ns,
       b.version_id AS reference_id, b.origin AS reference_origin, b.label AS reference_label,
       b.median_ns AS reference_ns, b.median_ns / a.median_ns AS ratio
FROM timing a
JOIN timing b ON b.group_id = a.group_id AND b.case_id = a.case_id AND b.device_id = a.device_id
             AND b.version_id <> a.version_id
"""
"""Every pair of versions measured interleaved on a case: ``ratio`` > 1 where the version beats the reference."""

VIEWS = (TIMING, SPEEDUP)
