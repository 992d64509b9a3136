//! What `bench/results/published-model.md` says of the model is still so.

#[allow(dead_code)] // The rest of the report is the example's.
#[path = "../../examples/published_model/study/mod.rs"]
mod study;

#[test]
fn the_report_on_published_tables_says_what_the_model_reaches() {
    let report = include_str!("../../bench/results/published-model.md");
    let lines = study::report::goal_lines();
    assert_eq!(lines.len(), 6);
    for line in &lines {
        assert!(!line.contains("missed"), "{line}");
        assert!(report.contains(line.as_str()), "run the example published_model: not in its report is\n{line}");
    }
}
