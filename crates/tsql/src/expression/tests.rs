//! Values of scripts as DBAs write them.
#![allow(clippy::unwrap_used)]

use super::super::lexemes::lexemes;
use super::*;

fn value_of(script: &str) -> Result<Value> {
    let now = "2026-11-26T04:05:06+00:00[UTC]".parse().unwrap();
    let mut variables = Variables::new(now);
    variables.set("Name", Value::Text("shop".into()));
    let mut parser = Parser::new(lexemes(script).unwrap());
    let value = variables.value(&mut parser)?;
    assert!(parser.peek().is_none(), "{script}");
    Ok(value)
}

#[test]
fn paths_are_built_as_scripts_of_backups_build_them() {
    for (script, text) in [
        ("N'/b/' + @name + N'_' + CONVERT(nvarchar(8), GETDATE(), 112) + N'.bak'", "/b/shop_20261126.bak"),
        ("'a' + REPLACE(CONVERT(varchar(8), GETDATE(), 108), ':', '')", "a040506"),
        ("UPPER(@NAME) + FORMAT(SYSDATETIME(), 'yyyy-MM-dd_HHmmss')", "SHOP2026-11-26_040506"),
        ("CAST(7 AS varchar(3)) + ('x' + 'y')", "7xy"),
        ("CONVERT(char(4), GETDATE(), 112)", "2026"),
        ("CONCAT('/b/', @name, NULL, 7, '.bak')", "/b/shop7.bak"),
        ("CONVERT(varchar(30), GETDATE())", "Nov 26 2026  4:05AM"),
        ("CONVERT(varchar(8), CAST(GETDATE() AS datetime2(0)), 112)", "20261126"),
    ] {
        assert_eq!(value_of(script).unwrap(), Value::Text(text.into()), "{script}");
    }
    assert_eq!(value_of("1024 + 1024").unwrap(), Value::Number(2048));
    for null in ["'a' + NULL", "UPPER(NULL)", "REPLACE('a', NULL, 'b')", "FORMAT(NULL, 'yyyy')", "CAST(NULL AS int)"] {
        assert_eq!(value_of(null).unwrap(), Value::Null, "{null}");
    }
}

#[test]
fn an_unknown_function_variable_or_style_is_an_error_with_its_place() {
    for (script, words) in [
        ("'a' + NEWID()", ["column 7", "NEWID"]),
        ("@other", ["@other", "not declared"]),
        ("CONVERT(nvarchar(8), GETDATE(), 999)", ["style 999", "112"]),
        ("'a' + 1", ["a number", "CONVERT"]),
        ("FORMAT(GETDATE(), 'tt')", ["`t`", "yyyy"]),
        ("FORMAT(7, '000')", ["`7`", "needs a time"]),
        ("CONVERT(varchar(10), CAST(GETDATE() AS date), 112)", ["DATE", "convert it to a text"]),
        ("99999999999999999999", ["64 bits", "whole"]),
    ] {
        let error = value_of(script).unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{script}: {error}");
    }
    assert!(value_of(&"(".repeat(1000)).unwrap_err().to_string().contains("too many brackets"));
}
