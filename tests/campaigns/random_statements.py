"""Random definitions, rows and settings, as sessions of real applications send them. A server may refuse each of them."""

import collections, re

Column = collections.namedtuple("Column", "name type charset generated key")

DATABASES = ("shop", "Ünï", "a-b", "select", "back`tick", "Mixed_Case")
CHARSETS = ("utf8mb4", "latin1", "utf8mb3", "binary", "ascii", "gbk", "sjis", "ucs2", "utf16")
TEXTS = ("''", "'a'", "'A '", "'ab\tc'", "'line\nline'", "'it''s'", "'a\\\\b'", "'10'", "'2024-02-29'", "'ß€ü'", "'日本'", "'😀'", "REPEAT('xy', 100)", "UUID()",
         "CURRENT_USER()", "CONNECTION_ID()", "x'00ff5c27'", "_latin1 x'e4f6'", "CHAR(0)", "CONCAT('n', RAND())", "DATABASE()", "@@server_id", "'null'", "'\\\\N'")
TYPES = ("TINYINT(1)", "SMALLINT UNSIGNED", "INT", "INT ZEROFILL", "BIGINT UNSIGNED", "DECIMAL(65,30)", "DECIMAL(10,2)", "FLOAT", "DOUBLE", "BIT(1)", "BIT(64)", "DATE",
         "DATETIME(6)", "DATETIME", "TIMESTAMP(3) NULL", "TIMESTAMP NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP", "TIME(6)", "YEAR", "CHAR(5)",
         "VARCHAR(60)", "VARCHAR(300)", "BINARY(4)", "VARBINARY(50)", "TEXT", "LONGBLOB", "TINYTEXT", "ENUM('','a','b''c','ü')", "SET('x','y','z,')", "JSON", "GEOMETRY", "POINT")
MYSQL_TYPES, MARIADB_TYPES = ("VECTOR(3)",), ("INET6", "UUID", "INET4")
SETTINGS = (
    "sql_mode=''", "sql_mode='ANSI_QUOTES'", "sql_mode='NO_BACKSLASH_ESCAPES'", "sql_mode='PAD_CHAR_TO_FULL_LENGTH'", "sql_mode='NO_ZERO_DATE'", "sql_mode='ALLOW_INVALID_DATES'",
    "sql_mode='NO_AUTO_VALUE_ON_ZERO'", "sql_mode='TRADITIONAL'", "sql_mode='PIPES_AS_CONCAT,IGNORE_SPACE'", "sql_mode='HIGH_NOT_PRECEDENCE'", "sql_mode='REAL_AS_FLOAT'",
    "sql_mode='NO_UNSIGNED_SUBTRACTION'", "sql_mode=DEFAULT", "time_zone='+05:30'", "time_zone='-12:00'", "time_zone='SYSTEM'", "time_zone='Europe/Berlin'",
    "NAMES latin1", "NAMES utf8mb4 COLLATE utf8mb4_bin", "NAMES binary", "collation_connection=latin1_german1_ci", "collation_database=latin1_swedish_ci",
    "collation_server=utf8mb4_bin", "foreign_key_checks=0", "foreign_key_checks=1", "unique_checks=0", "timestamp=86400", "timestamp=1700000000.5", "timestamp=DEFAULT",
    "insert_id=500", "last_insert_id=7", "auto_increment_increment=3, auto_increment_offset=2", "default_storage_engine=DEFAULT",
    "lc_time_names='de_DE'", "explicit_defaults_for_timestamp=0", "explicit_defaults_for_timestamp=1",
    "sql_auto_is_null=1", "sql_generate_invisible_primary_key=1", "show_gipk_in_create_table_and_information_schema=0", "binlog_row_image='NOBLOB'",
    "binlog_row_value_options='PARTIAL_JSON'", "binlog_rows_query_log_events=1", "binlog_format='MIXED'", "check_constraint_checks=0",
    "system_versioning_alter_history='KEEP'", "system_versioning_insert_history=1", "character_set_collations='utf8mb4=utf8mb4_bin'", "old_mode=''",
    "default_collation_for_utf8mb4='utf8mb4_general_ci'", "innodb_strict_mode=0", "big_tables=1", "block_encryption_mode='aes-256-cbc'", "alter_algorithm='COPY'")


def quoted(name):
    return "`" + name.replace("`", "``") + "`"


def read(server):
    """The base tables of the random databases: name with database → columns."""
    # Hexadecimal: names have every character.
    text = server.sql(
        "SELECT HEX(t.table_schema), HEX(t.table_name), HEX(column_name), HEX(column_type), IFNULL(c.character_set_name, ''), extra LIKE '%GENERATED%' AND extra NOT LIKE 'DEFAULT_GENERATED%', column_key "
        "FROM information_schema.tables t JOIN information_schema.columns c ON c.table_schema = t.table_schema AND c.table_name = t.table_name "
        "WHERE t.table_type IN ('BASE TABLE', 'SYSTEM VERSIONED') AND t.table_schema NOT IN ('mysql', 'sys', 'performance_schema', 'information_schema') "
        "ORDER BY t.table_schema, t.table_name, c.ordinal_position")
    tables = {}
    for line in text.splitlines():
        schema, table, *column = line.split("\t")
        schema, table, name, kind = (bytes.fromhex(one).decode() for one in (schema, table, *column[:2]))
        tables.setdefault((schema, table), []).append(Column(name, kind, column[2], column[3] == "1", column[4]))
    return tables


class Statements:
    """Chooses statements. `dice` decides everything but what the server itself chooses. `by_rows`: only what a log of rows has."""

    def __init__(self, dice, is_mysql, by_rows):
        self.dice, self.is_mysql, self.by_rows = dice, is_mysql, by_rows
        self.number, self.tables = 0, {}
        self.types = TYPES + (MYSQL_TYPES if is_mysql else MARIADB_TYPES)

    def new(self, stem):
        self.number += 1
        return f"{stem}{self.number}" + self.dice.choice(("", "", "", " x", "`", "é", "'", "%"))

    def plain(self, stem):
        """A name of code. In the log of a session that is not in UTF-8, servers write other letters wrongly."""
        return self.new(stem).replace("é", "e")

    def table(self):
        return self.dice.choice(list(self.tables)) if self.tables else ("shop", "nothing")

    def name_of(self, table):
        return f"{quoted(table[0])}.{quoted(table[1])}"

    def columns(self, table, settable=False):
        return [one for one in self.tables.get(table, []) if not (settable and one.generated)] or [Column("id", "int", "", False, "")]

    # -- values --

    def value(self, column):
        """A literal or an expression for a column of this type; sometimes one that does not fit."""
        chance, kind = self.dice, column.type.lower()
        if chance.random() < 0.06:
            return chance.choice(("NULL", "DEFAULT", "0", "''", "-1", "NOW()"))
        members = re.findall(r"'(?:[^']|'')*'", column.type)
        if kind.startswith("enum"):
            return str(chance.randint(1, len(members)))
        if kind.startswith("set"):
            return str(chance.randrange(1 << len(members)))
        if "int" in kind or kind.startswith("bit"):
            return str(chance.choice((0, 1, chance.randint(2, 120), chance.randint(2, 120), chance.randint(2, 30000), -5, 127)))
        if kind.startswith(("decimal", "float", "double", "real")):
            return chance.choice(("0", "1.005", "-12345678.99", "3.14159265358979", "1e10", "0.1", "99999999.99", "1/3", "PI()"))
        if kind.startswith("datetime") or kind.startswith("timestamp"):
            return chance.choice(("NOW(6)", "'2024-02-29 23:59:59.999999'", "'1970-01-02 00:00:01'", "'2038-01-19 03:14:07'", "'2024-10-27 02:30:00'", "'0000-00-00'", "'2024-01-01'"))
        if kind.startswith("date"):
            return chance.choice(("'2024-02-29'", "'0000-00-00'", "'9999-12-31'", "CURDATE()", "'2023-02-30'", "'2024-00-00'"))
        if kind.startswith("time"):
            return chance.choice(("'-838:59:59'", "'12:00:00.123456'", "CURTIME(6)", "'00:00:00'"))
        if kind.startswith("year"):
            return chance.choice(("1901", "2155", "0", "2024"))
        if kind.startswith(("geometry", "point")):
            return chance.choice(("ST_GeomFromText('POINT(1 2)')", "ST_GeomFromText('POINT(-1.5 1e10)', 4326)"))
        if kind.startswith("vector"):
            return "STRING_TO_VECTOR('[1,-2.5,3e10]')"
        if kind.startswith("json"):
            return chance.choice(("'{}'", "'[1, 2.50, \"ü\"]'", "'{\"a\": {\"b\": null}, \"c\": 1e400}'", "'\"text\"'", "JSON_OBJECT('a', 1, 'b', REPEAT('z', 300))"))
        if kind.startswith("inet"):
            return chance.choice(("'::1'", "'127.0.0.1'", "'fe80::1'"))
        if kind.startswith("uuid"):
            return "UUID()"
        return chance.choice(TEXTS)

    def expression(self, table):
        """A scalar over columns of a table."""
        one, other = (quoted(self.dice.choice(self.columns(table)).name) for _ in range(2))
        return self.dice.choice((f"{one}", f"CONCAT({one}, '/', {other})", f"LENGTH({one})", f"COALESCE({one}, {other}, 'x')", f"HEX({one})", f"{one} IS NULL", f"UPPER({one})",
                                 f"CONCAT({one}, 'ü')", f"IF({one} > 5, {one}, 'é')", f"JSON_OBJECT('k', {one})", f"CAST({one} AS CHAR(20))", f"MD5({one})", f"{one} + 1", f"LEFT({one}, 3)"))

    def condition(self, table):
        one = quoted(self.dice.choice(self.columns(table)).name)
        return self.dice.choice(("1", f"{one} IS NOT NULL", f"{one} > 5", f"LENGTH({one}) < 5", f"{one} LIKE '%a%'", "RAND() < 0.3", f"CRC32({one}) % 3 = 0"))

    # -- definitions --

    def column(self, name):
        chance = self.dice
        kind = chance.choice(self.types)
        text = f"{quoted(name)} {kind}"
        if kind.startswith(("CHAR", "VARCHAR", "TEXT", "TINYTEXT", "ENUM", "SET")) and chance.random() < 0.5:
            text += f" CHARACTER SET {chance.choice(CHARSETS)}"
        if "TIMESTAMP" in kind:
            return text
        more = chance.random()
        if more < 0.2:
            text += f" NOT NULL" + ("" if kind.startswith(("TEXT", "LONGBLOB", "TINYTEXT", "JSON", "GEO", "POINT", "VECTOR")) or chance.random() < 0.4 else f" DEFAULT {self.default(kind)}")
        elif more < 0.3:
            text += f" DEFAULT ({chance.choice(('1', 'UUID()', 'NOW()', '2 + 3', chr(39) + 'ü' + chr(39)))})"
        elif more < 0.45:
            text += f" {'GENERATED ALWAYS ' if chance.random() < 0.5 else ''}AS ({chance.choice(('`id` + 1', 'CONCAT(`id`, ' + chr(39) + 'x' + chr(39) + ')', '`id` / 3', 'MD5(`id`)', 'CHAR_LENGTH(`id`)', 'DATE_FORMAT(FROM_DAYS(`id`), ' + chr(39) + '%M' + chr(39) + ')'))}) {chance.choice(('VIRTUAL', 'STORED'))}"
        if chance.random() < 0.1:
            text += " INVISIBLE"
        if chance.random() < 0.1:
            text += " COMMENT 'it''s ü \\\\ 😀'"
        return text + (" CHECK (`id` > -100)" if chance.random() < 0.05 and not self.is_mysql else "")

    def default(self, kind):
        return self.value(Column("", kind, "", False, "")) if kind.startswith(("ENUM", "SET")) else {"DATE": "'2001-01-01'", "DATETIME": "CURRENT_TIMESTAMP", "DATETIME(6)": "CURRENT_TIMESTAMP(6)", "INET6": "'::'", "INET4": "'1.1.1.1'", "UUID": "'00000000-0000-0000-0000-000000000000'"}.get(kind, "1")

    def create_table(self):
        chance, table = self.dice, (self.dice.choice(DATABASES), self.new("t"))
        parts = [f"`id` {chance.choice(('INT', 'INT', 'BIGINT UNSIGNED', 'VARCHAR(40)', 'VARCHAR(40) CHARACTER SET latin1 COLLATE latin1_german2_ci', 'DECIMAL(20,3)', 'VARBINARY(20)'))} NOT NULL"]
        if "INT" in parts[0] and chance.random() < 0.6:
            parts[0] += " AUTO_INCREMENT"
        engine = "" if self.by_rows else " ENGINE=MyISAM"
        names = [self.new("c") for _ in range(chance.randint(1, 6))]
        parts += [self.column(name) for name in names]
        key = chance.random()
        parts += ["PRIMARY KEY (`id`)"] if key < 0.6 else ["KEY (`id`)"] if key < 0.8 else ["UNIQUE (`id`)"] if "AUTO" in parts[0] or key < 0.9 else []
        if chance.random() < 0.3:
            parts.append(f"{chance.choice(('', 'UNIQUE '))}KEY {quoted(self.new('k'))} ({quoted(chance.choice(names))}{chance.choice(('', '(3)', ' DESC'))})")
        if chance.random() < 0.1:
            parts.append(f"CONSTRAINT {quoted(self.new('check'))} CHECK (`id` <> 77)")
        if chance.random() < 0.15:
            other = self.table()
            parts.append(f"KEY (`id`), CONSTRAINT {quoted(self.new('fk'))} FOREIGN KEY (`id`) REFERENCES {self.name_of(other)} ({quoted(self.columns(other)[0].name)}) ON DELETE CASCADE ON UPDATE CASCADE")
        options = chance.choice(("", "", "", " ENGINE=InnoDB", f" DEFAULT CHARSET={chance.choice(CHARSETS)}", " COMMENT 'a ''table'' ü'", " ROW_FORMAT=DYNAMIC", " AUTO_INCREMENT=1000",
                                 "" if self.is_mysql else " WITH SYSTEM VERSIONING", engine, "" if self.is_mysql else " PAGE_COMPRESSED=1"))
        options += chance.choice(("",) * 6 + (" PARTITION BY HASH (`id`) PARTITIONS 3", " PARTITION BY KEY (`id`) PARTITIONS 2",
                                              " PARTITION BY RANGE (`id`) (PARTITION p0 VALUES LESS THAN (50), PARTITION p1 VALUES LESS THAN MAXVALUE)"))
        self.tables[table] = [Column("id", "int", "", False, "PRI"), *(Column(name, "varchar(60)", "", False, "") for name in names)]
        return f"CREATE TABLE {self.name_of(table)} ({', '.join(parts)}){options}"

    def alter_table(self):
        chance, table = self.dice, self.table()
        one, name = quoted(chance.choice(self.columns(table)).name), self.new("c")
        action = chance.choice((
            f"ADD COLUMN {self.column(name)}", f"ADD COLUMN {self.column(name)} FIRST", f"ADD COLUMN {self.column(name)} AFTER {one}", f"DROP COLUMN {one}", f"MODIFY {self.column('id')}",
            f"CHANGE {one} {self.column(name)}", f"ADD INDEX {quoted(self.new('k'))} ({one})", f"ADD UNIQUE {quoted(self.new('k'))} ({one}, `id`)", f"ADD FULLTEXT ({one})",
            f"CONVERT TO CHARACTER SET {chance.choice(CHARSETS)}", f"ENGINE={chance.choice(('InnoDB', 'InnoDB', 'InnoDB' if self.by_rows else 'MyISAM'))}", "FORCE", "COMMENT 'new'", "AUTO_INCREMENT=700", "DROP PRIMARY KEY",
            f"ADD CONSTRAINT {quoted(self.new('check'))} CHECK ({one} IS NOT NULL)", f"RENAME COLUMN {one} TO {quoted(name)}", f"RENAME TO {self.name_of((table[0], self.new('r')))}",
            "PARTITION BY HASH (`id`) PARTITIONS 4", "REMOVE PARTITIONING", "TRUNCATE PARTITION p0", f"ALTER COLUMN {one} SET DEFAULT 3", "ORDER BY `id`", "DISABLE KEYS", "COALESCE PARTITION 1",
            f"ADD INDEX {quoted(self.new('f'))} ((LOWER({one})))" if self.is_mysql else "ADD SYSTEM VERSIONING", f"ALTER COLUMN {one} SET INVISIBLE" if self.is_mysql else "DROP SYSTEM VERSIONING"))
        return f"ALTER TABLE {self.name_of(table)} {action}"

    def other_definition(self):
        chance, table = self.dice, self.table()
        name = self.name_of(table)
        return chance.choice((
            f"TRUNCATE TABLE {name}", f"DROP TABLE {name}", f"RENAME TABLE {name} TO {self.name_of((chance.choice(DATABASES), self.new('r')))}",
            f"CREATE TABLE {self.name_of((table[0], self.new('like')))} LIKE {name}", f"CREATE TABLE {self.name_of((table[0], self.new('ctas')))} AS SELECT * FROM {name}",
            f"CREATE TABLE {self.name_of((table[0], self.new('ctas')))} AS SELECT {self.expression(table)} AS e, 'ü' AS l, NOW(3) AS n FROM {name}", f"OPTIMIZE TABLE {name}",
            f"CREATE DATABASE IF NOT EXISTS {quoted(chance.choice(DATABASES))} CHARACTER SET {chance.choice(CHARSETS)}", f"ALTER DATABASE {quoted(table[0])} CHARACTER SET {chance.choice(CHARSETS)}",
            f"DROP DATABASE {quoted(chance.choice(DATABASES))}" if chance.random() < 0.1 else f"CREATE DATABASE IF NOT EXISTS {quoted(chance.choice(DATABASES))}", f"ANALYZE TABLE {name}"))

    def code(self):
        """A view, trigger, routine, event or sequence, or its end."""
        chance, table = self.dice, self.table()
        schema, columns = quoted(table[0]), self.columns(table, settable=True)
        one = chance.choice(columns)
        literal = chance.choice(("'ü'", "\"it's\"", "'a\\\\b'", "'€'", "N'x'", "_latin1'a'", "x'41'", "1 || 2", "NOW()"))
        in_a_view = "'v'" if literal.startswith("N'") else literal  # SHOW CREATE VIEW loses the character set.
        return chance.choice((
            f"CREATE OR REPLACE VIEW {schema}.{quoted(self.plain('v'))} AS SELECT {self.expression(table)} AS e, {in_a_view} AS l FROM {self.name_of(table)} WHERE {self.condition(table).replace('RAND() < 0.3', '1')}",
            f"CREATE TRIGGER {schema}.{quoted(self.plain('tr'))} BEFORE {chance.choice(('INSERT', 'UPDATE'))} ON {self.name_of(table)} FOR EACH ROW SET NEW.{quoted(one.name)} = {self.value(one)}",
            f"CREATE PROCEDURE {schema}.{quoted(self.plain('p'))} (IN x VARCHAR(20)) COMMENT 'a''b' BEGIN INSERT IGNORE INTO {self.name_of(table)} ({quoted(one.name)}) VALUES (CONCAT(x, {literal})); /* end; */ END",
            f"CREATE FUNCTION {schema}.{quoted(self.plain('f'))} (x TEXT) RETURNS VARCHAR(99) DETERMINISTIC RETURN CONCAT(x, {literal})",
            f"CREATE EVENT {schema}.{quoted(self.plain('e'))} ON SCHEDULE EVERY 1 DAY STARTS '2035-01-01 00:00:00' {chance.choice(('', 'DISABLE', 'COMMENT ' + chr(39) + 'u' + chr(39)))} DO INSERT INTO {self.name_of(table)} VALUES ({literal})",
            f"DROP VIEW IF EXISTS {schema}.{quoted(f'v{chance.randint(1, self.number)}')}", f"DROP TRIGGER IF EXISTS {schema}.{quoted(f'tr{chance.randint(1, self.number)}')}",
            f"CREATE SEQUENCE {schema}.{quoted(self.plain('s'))} START WITH 5 INCREMENT BY {chance.choice((1, -3, 10))} {chance.choice(('', 'CYCLE', 'CACHE 3', 'NOCACHE'))}" if not self.is_mysql else "DO 1"))

    # -- rows --

    def insert(self):
        chance, table = self.dice, self.table()
        columns = self.columns(table, settable=True)
        chosen = [one for one in columns if chance.random() < 0.8] or columns[:1]
        rows = ", ".join("(" + ", ".join(self.value(one) for one in chosen) + ")" for _ in range(chance.choice((1, 1, 3, 20))))
        verb = chance.choice(("INSERT INTO", "INSERT INTO", "INSERT IGNORE INTO", "INSERT IGNORE INTO", "REPLACE INTO"))
        more = f" ON DUPLICATE KEY UPDATE {quoted(chance.choice(columns).name)} = {self.value(columns[0])}" if verb != "REPLACE INTO" and chance.random() < 0.2 else ""
        return f"{verb} {self.name_of(table)} ({', '.join(quoted(one.name) for one in chosen)}) VALUES {rows}{more}"

    def change(self):
        chance, table = self.dice, self.table()
        name, one = self.name_of(table), chance.choice(self.columns(table, settable=True))
        other = self.table()
        return chance.choice((
            f"UPDATE {chance.choice(('', 'IGNORE '))}{name} SET {quoted(one.name)} = {self.value(one)} WHERE {self.condition(table)} LIMIT {chance.randint(1, 20)}",
            f"UPDATE IGNORE {name} SET {quoted(one.name)} = {self.expression(table)} WHERE {self.condition(table)}", f"DELETE FROM {name} WHERE {self.condition(table)} LIMIT {chance.randint(1, 5)}",
            f"INSERT IGNORE INTO {name} ({quoted(one.name)}) SELECT {self.expression(other)} FROM {self.name_of(other)} LIMIT 20",
            f"DELETE a FROM {name} a JOIN {self.name_of(other)} b ON a.`id` = b.`id` WHERE RAND() < 0.3"))

    def transaction(self):
        chance = self.dice
        inner = []
        for number in range(chance.randint(1, 5)):
            inner.append(chance.choice((self.insert, self.insert, self.change))())
            if chance.random() < 0.3:
                inner.append(f"SAVEPOINT s{number}")
            if chance.random() < 0.2:
                inner.append(f"ROLLBACK TO SAVEPOINT s{chance.randint(0, number)}")
        ways = [("START TRANSACTION", "COMMIT"), ("START TRANSACTION", "COMMIT"), ("START TRANSACTION", "ROLLBACK")]
        if not self.by_rows:
            ways += [("XA START 'x'", "XA END 'x'; XA PREPARE 'x'; XA COMMIT 'x'"), ("XA START 'y'", "XA END 'y'; XA ROLLBACK 'y'")]
        begin, end = chance.choice(ways)
        return "; ".join((begin, *inner, end))

    def temporary(self):
        """A temporary table: it must never reach a copy."""
        table, name = self.table(), quoted(self.new("temp"))
        return (f"CREATE TEMPORARY TABLE {quoted(table[0])}.{name} AS SELECT * FROM {self.name_of(table)} LIMIT 5; INSERT IGNORE INTO {self.name_of(table)} SELECT * FROM {quoted(table[0])}.{name}; "
                f"DROP TEMPORARY TABLE {quoted(table[0])}.{name}")

    def setting(self):
        return f"SET {self.dice.choice([one for one in SETTINGS if not (self.by_rows and 'binlog_format' in one)])}"

    def next(self):
        """One statement, or several that belong together, and its kind."""
        kind = self.dice.choices((self.insert, self.change, self.transaction, self.create_table, self.alter_table, self.other_definition, self.code, self.setting, self.temporary),
                                 (30, 12, 10, 12, 14, 6, 10, 10, 2))[0]
        return kind.__name__, kind()

    def schema(self, tables):
        """The first definitions and rows."""
        yield "create_database", "; ".join(f"CREATE DATABASE {quoted(name)} CHARACTER SET {self.dice.choice(('utf8mb4', 'utf8mb4', 'latin1', 'gbk'))}" for name in DATABASES)
        for _ in range(tables):
            yield "create_table", self.create_table()
