//! What may a user do, when a client asks? `has_table_privilege` and its kin, answered by the same rules that decide
//! ([`authorize`]).
//!
//! Tables, schemas and users are given by name. Of the object ids that clients have, `'t'::regclass` and the `oid` of a
//! catalog's relation are read as the names that they stand for ([`name_objects`]); others are refused.

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, BooleanArray, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DataFusionError, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType as Named, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
    Ident, ObjectName, Statement, TableFactor, Value, Visitor, VisitorMut,
};
use tarn_node::auth::PUBLIC;
use tarn_node::auth::authorize::is_superuser;
use tarn_node::auth::users::Users;
use tarn_node::auth::{AuthAction, Principal, Privilege, authorize};
use tarn_node::node::Node;
use tarn_query::{walk, walk_mut};
use tarn_types::{TableSchema, full_name};

use crate::error::{Result, SqlError, state};
use crate::names::{DATABASE, fold};
use crate::postgres::binary;
use crate::relations::has_number;
use crate::with_sql::WITH;

/// Of what a function tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum PrivilegeObject {
    Table,
    /// A row of `pg_class`: the name as it is, in any schema.
    Relation,
    Schema,
    Database,
}

/// Tables of schema `tarn` of which everybody sees the rows of tables that they may use; the others are for superusers.
const BY_TABLE: [&str; 5] = ["blocks", "deliveries", "keys", "tables", "tablets"];

/// Tables of schema `pg_catalog` with what only superusers see.
const SECRET: [&str; 2] = ["pg_authid", "pg_shadow"];

/// Whether everybody may read a relation of the catalogs.
pub fn is_open_relation(schema: &str, table: &str) -> bool {
    match schema {
        "tarn" => BY_TABLE.contains(&table),
        "pg_catalog" => !SECRET.contains(&table),
        // What a part of a statement reads of another.
        "information_schema" | WITH => true,
        _ => false,
    }
}

const FUNCTIONS: [(&str, PrivilegeObject); 5] = [
    ("has_table_privilege", PrivilegeObject::Table),
    ("has_any_column_privilege", PrivilegeObject::Table),
    (RELATION, PrivilegeObject::Relation),
    ("has_schema_privilege", PrivilegeObject::Schema),
    ("has_database_privilege", PrivilegeObject::Database),
];

/// What `has_table_privilege` of an `oid` is called when it is of a name.
const RELATION: &str = "tarn_has_relation_privilege";

/// The functions, for a session of one user.
pub fn functions(node: &Arc<Node>, who: &Principal) -> impl Iterator<Item = ScalarUDF> {
    let signature = Signature::one_of(vec![TypeSignature::Any(2), TypeSignature::Any(3)], Volatility::Volatile);
    FUNCTIONS
        .map(|(name, of)| {
            let asks =
                HasPrivilege { name, of, signature: signature.clone(), node: Arc::clone(node), who: who.clone() };
            ScalarUDF::new_from_impl(asks)
        })
        .into_iter()
}

/// Reads object ids in calls of these functions as the names that they stand for.
pub fn name_objects(statement: &mut Statement) {
    #[derive(Default)]
    struct RelationAliases(HashMap<String, String>);
    impl Visitor for RelationAliases {
        type Break = ();
        fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
            if let TableFactor::Table { name, alias, args: None, .. } = factor
                && let Some(relation) = name.0.last().and_then(|part| part.as_ident()).map(fold)
            {
                let known = alias.as_ref().map_or(relation.clone(), |alias| fold(&alias.name));
                self.0.insert(known, relation);
            }
            ControlFlow::Continue(())
        }
    }
    struct PrivilegeCallRewriter<'a>(&'a HashMap<String, String>);
    impl VisitorMut for PrivilegeCallRewriter<'_> {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            if let Expr::Function(call) = expr {
                name_object(call, self.0);
            }
            ControlFlow::Continue(())
        }
    }
    let mut relations = RelationAliases::default();
    let _ = walk(&*statement, &mut relations);
    let _ = walk_mut(statement, &mut PrivilegeCallRewriter(&relations.0));
}

fn name_object(call: &mut Function, relations: &HashMap<String, String>) {
    let Some(name) = call.name.0.last().and_then(|part| part.as_ident()).map(fold) else { return };
    let Some((_, of)) = FUNCTIONS.iter().find(|(known, _)| *known == name) else { return };
    let FunctionArguments::List(list) = &mut call.args else { return };
    let object = match list.args.as_mut_slice() {
        [object, _] | [_, object, _] => object,
        _ => return,
    };
    let FunctionArg::Unnamed(FunctionArgExpr::Expr(object)) = object else { return };
    match object {
        Expr::Cast { expr, data_type: Named::Regclass, .. } if matches!(expr.as_ref(), Expr::Value(_)) => {
            *object = expr.as_ref().clone();
        }
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => {
            let (relation, column) = match object {
                Expr::CompoundIdentifier(parts) => match parts.as_mut_slice() {
                    [.., relation, column] => (relations.get(&fold(relation)), column),
                    _ => return,
                },
                Expr::Identifier(column) if relations.len() == 1 => (relations.values().next(), column),
                _ => return,
            };
            if fold(column) != "oid" {
                return;
            }
            match (relation.map(String::as_str), of) {
                (Some("pg_class"), PrivilegeObject::Table) => {
                    let oid = std::mem::replace(column, Ident::new("relname"));
                    *object = with_number(object.clone(), &oid);
                    call.name = ObjectName::from(vec![Ident::new(RELATION)]);
                }
                (Some("pg_namespace"), PrivilegeObject::Schema) => *column = Ident::new("nspname"),
                (Some("pg_database"), PrivilegeObject::Database) => *column = Ident::new("datname"),
                _ => {}
            }
        }
        _ => {}
    }
}

/// `oid::text || ' ' || relname`, as two relations of one name are in two schemas.
fn with_number(name: Expr, oid: &Ident) -> Expr {
    let mut number = name.clone();
    match &mut number {
        Expr::CompoundIdentifier(parts) => parts.last_mut().into_iter().for_each(|last| *last = oid.clone()),
        other => *other = Expr::Identifier(oid.clone()),
    }
    let number = Expr::Cast {
        kind: CastKind::DoubleColon,
        expr: Box::new(number),
        data_type: Named::Text,
        array: false,
        format: None,
    };
    let blank = Expr::Value(Value::SingleQuotedString(" ".to_owned()).with_empty_span());
    let joined = binary(number, BinaryOperator::StringConcat, blank);
    binary(joined, BinaryOperator::StringConcat, name)
}

struct HasPrivilege {
    name: &'static str,
    of: PrivilegeObject,
    signature: Signature,
    node: Arc<Node>,
    who: Principal,
}

impl fmt::Debug for HasPrivilege {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for HasPrivilege {
    fn eq(&self, other: &HasPrivilege) -> bool {
        self.name == other.name && self.who == other.who
    }
}

impl Eq for HasPrivilege {}

impl Hash for HasPrivilege {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for HasPrivilege {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> datafusion::error::Result<DataType> {
        let is_text = |data_type: &DataType| data_type.is_string() || data_type.is_null();
        if types.iter().all(is_text) {
            return Ok(DataType::Boolean);
        }
        let refused = SqlError::unsupported(
            format!("{} of an object id is not supported", self.name),
            "give the names of the user, the object and the privilege as text",
        );
        Err(DataFusionError::External(Box::new(refused)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> datafusion::error::Result<ColumnarValue> {
        let is_scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let n_rows = if is_scalar { 1 } else { args.number_rows };
        let texts = args.args.iter().map(|arg| cast(&arg.to_array(n_rows)?, &DataType::Utf8).map_err(Into::into));
        let texts = texts.collect::<datafusion::error::Result<Vec<_>>>()?;
        let texts: Vec<&StringArray> = texts.iter().map(|array| array.as_string::<i32>()).collect();
        let users = self.node.users().users();
        let answers = (0..n_rows).map(|row| {
            let given: Option<Vec<&str>> = texts.iter().map(|t| (!t.is_null(row)).then(|| t.value(row))).collect();
            match given.as_deref() {
                None => Ok(None),
                Some([object, privileges]) => {
                    self.any(&users, PrivilegeHolder::This(&self.who), object, privileges).map(Some)
                }
                Some([user, object, privileges]) => self.any(&users, whom(&users, user)?, object, privileges).map(Some),
                Some(_) => {
                    Err(SqlError::new(state::UNDEFINED_FUNCTION, format!("{} takes two or three texts", self.name)))
                }
            }
        });
        let answers = answers.collect::<Result<BooleanArray>>().map_err(|e| DataFusionError::External(Box::new(e)))?;
        match is_scalar {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&answers, 0)?)),
            false => Ok(ColumnarValue::Array(Arc::new(answers))),
        }
    }
}

/// Of whom it is asked.
enum PrivilegeHolder<'a> {
    This(&'a Principal),
    Other(Principal),
    /// What everybody who can log in was granted.
    Everybody,
}

fn whom<'a>(users: &Users, name: &str) -> Result<PrivilegeHolder<'a>> {
    if users.is_empty() {
        return Ok(PrivilegeHolder::Other(Principal::Nobody));
    }
    if name == PUBLIC {
        return Ok(PrivilegeHolder::Everybody);
    }
    match users.get(name) {
        Some(user) => Ok(PrivilegeHolder::Other(Principal::User { name: name.to_owned(), id: user.id })),
        None => Err(SqlError::new(state::UNDEFINED_OBJECT, format!("role \"{}\" does not exist", name.escape_debug()))),
    }
}

impl HasPrivilege {
    /// Whether one of the privileges is held, as Postgres reads such lists.
    fn any(&self, users: &Users, whom: PrivilegeHolder<'_>, object: &str, privileges: &str) -> Result<bool> {
        let mut held = false;
        for privilege in privileges.split(',') {
            held |= self.one(users, &whom, object, &privilege.trim().to_ascii_lowercase())?;
        }
        Ok(held)
    }

    fn one(&self, users: &Users, whom: &PrivilegeHolder<'_>, object: &str, privilege: &str) -> Result<bool> {
        let (word, may_grant) = match privilege.strip_suffix(" with grant option") {
            Some(word) => (word.trim_end(), true),
            None => (privilege, false),
        };
        let may = |action: AuthAction<'_>| match whom {
            PrivilegeHolder::This(who) => authorize(users, who, &action).is_ok(),
            PrivilegeHolder::Other(who) => authorize(users, who, &action).is_ok(),
            PrivilegeHolder::Everybody => match action {
                AuthAction::Session => true,
                AuthAction::Rows { of, privilege } => users.is_granted(of.id, PUBLIC, privilege),
                AuthAction::Create => users.may_create(PUBLIC),
                AuthAction::Through { .. }
                | AuthAction::Own { .. }
                | AuthAction::Change { .. }
                | AuthAction::Password { .. }
                | AuthAction::Signal { .. }
                | AuthAction::Server { .. } => false,
            },
        };
        let unknown = || {
            let message = format!("unrecognized privilege type: \"{}\"", privilege.escape_debug());
            Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message))
        };
        match self.of {
            PrivilegeObject::Table | PrivilegeObject::Relation => {
                let wanted = match word {
                    "select" => Some(Privilege::Select),
                    "insert" => Some(Privilege::Insert),
                    "update" => Some(Privilege::Update),
                    "delete" => Some(Privilege::Delete),
                    // Nobody can do what they are for.
                    "truncate" | "references" | "trigger" => None,
                    _ => return unknown(),
                };
                let table = self.table(object)?;
                let object = object
                    .split_once(' ')
                    .filter(|_| self.of == PrivilegeObject::Relation)
                    .map_or(object, |(_, name)| name);
                let Some(table) = table else {
                    let reads = wanted == Some(Privilege::Select) && !may_grant;
                    let rooted = match whom {
                        PrivilegeHolder::This(who) => is_superuser(users, who),
                        PrivilegeHolder::Other(who) => is_superuser(users, who),
                        PrivilegeHolder::Everybody => false,
                    };
                    return Ok(reads && may(AuthAction::Session) && (rooted || is_open(object)));
                };
                let Some(privilege) = wanted else { return Ok(false) };
                Ok(match may_grant {
                    true => may(AuthAction::Own { of: &table }),
                    false => may(AuthAction::Rows { of: &table, privilege }),
                })
            }
            PrivilegeObject::Schema => {
                let made = self.node.schemas().get(object);
                let is_public = match object {
                    "public" => true,
                    "pg_catalog" | "information_schema" | "tarn" => false,
                    _ if made.is_some() => false,
                    other => {
                        let message = format!("schema \"{}\" does not exist", other.escape_debug());
                        return Err(SqlError::new("3F000", message));
                    }
                };
                match word {
                    "usage" => Ok(!may_grant && may(AuthAction::Session)),
                    "create" if made.is_some() => {
                        let owner = made.and_then(|of| of.owner);
                        let is_owners = match whom {
                            PrivilegeHolder::This(who) => who.name().is_some_and(|name| owner.as_deref() == Some(name)),
                            PrivilegeHolder::Other(who) => {
                                who.name().is_some_and(|name| owner.as_deref() == Some(name))
                            }
                            PrivilegeHolder::Everybody => false,
                        };
                        Ok(!may_grant && (is_owners || may(AuthAction::Server { what: "create in schemas of others" })))
                    }
                    "create" if may_grant => Ok(is_public && may(AuthAction::Server { what: "grant" })),
                    "create" => Ok(is_public && may(AuthAction::Create)),
                    _ => unknown(),
                }
            }
            PrivilegeObject::Database => {
                if object != DATABASE {
                    let message = format!("database \"{}\" does not exist", object.escape_debug());
                    return Err(SqlError::new("3D000", message));
                }
                match word {
                    "connect" => Ok(!may_grant && may(AuthAction::Session)),
                    // A schema.
                    "create" => Ok(!may_grant && may(AuthAction::Server { what: "create schemas" })),
                    // Everybody may make temporary tables.
                    "temp" | "temporary" => Ok(!may_grant && may(AuthAction::Session)),
                    _ => unknown(),
                }
            }
        }
    }

    /// `None`: a relation of the catalogs.
    fn table(&self, name: &str) -> Result<Option<Arc<TableSchema>>> {
        let catalog = self.node.catalog();
        let parts = match self.of {
            // Who may use a table may know its index.
            PrivilegeObject::Relation => {
                let number = name.split_once(' ').and_then(|(number, _)| number.parse().ok());
                let is_it = |table: &Arc<TableSchema>| number.is_some_and(|number| has_number(table, number));
                return Ok(catalog.schemas().into_iter().find(is_it));
            }
            _ => parts(name),
        };
        match parts.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            [table] if table.starts_with("pg_") && !catalog.contains(table) => Ok(None),
            [table] => Ok(Some(catalog.schema(table)?)),
            ["pg_catalog" | "information_schema" | "tarn", _] => Ok(None),
            [schema, table] | [_, schema, table] => Ok(Some(catalog.schema(&full_name::join(schema, table))?)),
            _ => Err(SqlError::undefined_table(name)),
        }
    }
}

fn is_open(name: &str) -> bool {
    match parts(name).as_slice() {
        [schema, table] => is_open_relation(schema, table),
        // A name of pg_class, which does not say of which schema.
        [table] => {
            let is_ours = crate::system::NAMES.contains(&table.as_str());
            is_open_relation("pg_catalog", table) && (!is_ours || is_open_relation("tarn", table))
        }
        _ => false,
    }
}

/// The parts of a name as SQL writes it: `public."Big"`.
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![];
    let (mut part, mut is_quoted) = (String::new(), false);
    let mut chars = name.trim().chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if is_quoted && chars.peek() == Some(&'"') => part.extend(chars.next()),
            '"' => is_quoted = !is_quoted,
            '.' if !is_quoted => parts.push(std::mem::take(&mut part)),
            c if is_quoted => part.push(c),
            c => part.extend(c.to_lowercase()),
        }
    }
    parts.push(part);
    parts
}

#[cfg(test)]
mod tests {
    use tarn_query::parser::statements;

    use super::*;

    #[test]
    fn object_ids_are_named() {
        for (sql, named) in [
            ("SELECT has_table_privilege('t'::regclass, 'select')", "SELECT has_table_privilege('t', 'select')"),
            (
                "SELECT pg_catalog.has_table_privilege('bob', c.oid, 'select') FROM pg_class AS c",
                "SELECT tarn_has_relation_privilege('bob', c.oid::TEXT || ' ' || c.relname, 'select') FROM pg_class AS c",
            ),
            (
                "SELECT has_schema_privilege(oid, 'usage') FROM pg_namespace",
                "SELECT has_schema_privilege(nspname, 'usage') FROM pg_namespace",
            ),
            ("SELECT has_table_privilege(1, 'select')", "SELECT has_table_privilege(1, 'select')"),
        ] {
            let mut statement = statements(sql).unwrap().remove(0);
            name_objects(&mut statement);
            assert_eq!(statement.to_string(), named);
        }
        assert_eq!(parts("Public.\"A.\"\"b\""), ["public", "A.\"b"]);
    }
}
