//! Which functions of SQL are about the session that asks? Its settings (`current_setting`, `set_config`), its advisory
//! locks, and `pg_sleep`. Those that wait do not hold a thread.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, AsArray, new_empty_array};
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::async_udf::{AsyncScalarUDF, AsyncScalarUDFImpl};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};

use tarn_node::node::Node;

use crate::advisory::{LockKey, Mode, OwnLocks};
use crate::channels::Mail;
use crate::error::{SqlError, state};
use crate::schema_path;
use crate::session::set_back::{Scope, Settable};
use crate::session::vars::{Vars, is_engine_setting, is_identity};

/// What the functions are about.
#[derive(Clone)]
pub(crate) struct FunctionContext {
    /// Its settings.
    pub settable: Settable,
    /// Its advisory locks.
    pub locks: Arc<OwnLocks>,
    /// What it tells and hears.
    pub mail: Arc<Mail>,
    /// Whose users and tables are asked about.
    pub node: Arc<Node>,
}

impl FunctionContext {
    /// The functions.
    pub fn functions(&self) -> Vec<ScalarUDF> {
        let mut all: Vec<(String, SessionFunction)> = vec![
            ("current_setting".to_owned(), SessionFunction::ShowSetting),
            ("set_config".to_owned(), SessionFunction::Set),
            ("pg_sleep".to_owned(), SessionFunction::Sleep),
            ("pg_notify".to_owned(), SessionFunction::Notify),
            ("pg_advisory_unlock_all".to_owned(), SessionFunction::UnlockAll),
        ];
        for is_shared in [false, true] {
            let shared = if is_shared { "_shared" } else { "" };
            all.push((format!("pg_advisory_unlock{shared}"), SessionFunction::Unlock { is_shared }));
            for of_transaction in [false, true] {
                let (level, mode) = (if of_transaction { "_xact" } else { "" }, Mode { is_shared, of_transaction });
                all.push((format!("pg_advisory{level}_lock{shared}"), SessionFunction::Lock(mode)));
                all.push((format!("pg_try_advisory{level}_lock{shared}"), SessionFunction::TryLock(mode)));
            }
        }
        let schemas = schema_path::functions(&self.settable.vars, &self.node);
        let functions = all.into_iter().map(|(name, does)| {
            let signature = does.signature();
            let function = OfSession { name, does, signature, own: self.clone() };
            AsyncScalarUDF::new(Arc::new(function)).into_scalar_udf()
        });
        functions.chain(schemas).collect()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SessionFunction {
    ShowSetting,
    Set,
    Sleep,
    Notify,
    Lock(Mode),
    TryLock(Mode),
    Unlock { is_shared: bool },
    UnlockAll,
}

impl SessionFunction {
    fn signature(self) -> Signature {
        let exact = |types: &[DataType]| TypeSignature::Exact(types.to_vec());
        let text = DataType::Utf8;
        let kinds = match self {
            SessionFunction::ShowSetting => vec![exact(std::slice::from_ref(&text)), exact(&[text, DataType::Boolean])],
            SessionFunction::Set => vec![exact(&[text.clone(), text, DataType::Boolean])],
            SessionFunction::Sleep => vec![exact(&[DataType::Float64])],
            SessionFunction::Notify => vec![exact(&[text.clone(), text])],
            SessionFunction::Lock(_) | SessionFunction::TryLock(_) | SessionFunction::Unlock { .. } => {
                vec![exact(&[DataType::Int64]), exact(&[DataType::Int64, DataType::Int64])]
            }
            SessionFunction::UnlockAll => vec![TypeSignature::Nullary],
        };
        Signature::one_of(kinds, Volatility::Volatile)
    }
}

struct OfSession {
    name: String,
    does: SessionFunction,
    signature: Signature,
    own: FunctionContext,
}

impl fmt::Debug for OfSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl PartialEq for OfSession {
    fn eq(&self, other: &OfSession) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.own.locks, &other.own.locks)
    }
}

impl Eq for OfSession {}

impl Hash for OfSession {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for OfSession {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.does {
            SessionFunction::TryLock(_) | SessionFunction::Unlock { .. } => DataType::Boolean,
            // PostgreSQL's void is an empty text to clients.
            _ => DataType::Utf8,
        })
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Err(SqlError::unsupported(format!("{} in this place", self.name), "call it in the list of columns of a SELECT")
            .into())
    }
}

#[async_trait]
impl AsyncScalarUDFImpl for OfSession {
    async fn invoke_async_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let columns = args.args.iter().map(|arg| arg.to_array(args.number_rows)).collect::<Result<Vec<_>>>()?;
        let mut answers = Vec::with_capacity(args.number_rows);
        for row in 0..args.number_rows {
            let is_null = columns.iter().any(|column| column.is_null(row));
            answers.push(match is_null && self.does != SessionFunction::Notify {
                true => ScalarValue::try_new_null(args.return_field.data_type())?,
                false => self.answer(&columns, row).await?,
            });
        }
        Ok(ColumnarValue::Array(match answers.is_empty() {
            true => new_empty_array(args.return_field.data_type()),
            false => ScalarValue::iter_to_array(answers)?,
        }))
    }
}

impl OfSession {
    async fn answer(&self, columns: &[ArrayRef], row: usize) -> Result<ScalarValue> {
        let void = || ScalarValue::Utf8(Some(String::new()));
        let truth = |truth: bool| ScalarValue::Boolean(Some(truth));
        let FunctionContext { settable, locks, mail, .. } = &self.own;
        let vars = &settable.vars;
        Ok(match self.does {
            SessionFunction::ShowSetting => {
                let may_be_missing = columns.get(1).is_some_and(|may| may.as_boolean().value(row));
                match shown(&vars.lock(), columns[0].as_string::<i32>().value(row)) {
                    Ok(value) => ScalarValue::Utf8(Some(value)),
                    Err(_) if may_be_missing => ScalarValue::Utf8(None),
                    Err(error) => return Err(error.into()),
                }
            }
            SessionFunction::Set => {
                let text = |column: &ArrayRef| column.as_string::<i32>().value(row).to_owned();
                let (name, value) = (text(&columns[0]), text(&columns[1]));
                let is_local = columns[2].as_boolean().value(row);
                set(settable, &name, &value, is_local)?;
                // Outside of a transaction it is over already: what was set is not there to be read.
                let is_over = is_local && !settable.transaction.lock().is_open();
                ScalarValue::Utf8(Some(if is_over { value } else { vars.lock().get(&name)? }))
            }
            SessionFunction::Sleep => {
                let seconds = columns[0].as_primitive::<Float64Type>().value(row).clamp(0.0, MAX_SLEEP_S);
                tokio::time::sleep(Duration::from_secs_f64(if seconds.is_nan() { 0.0 } else { seconds })).await;
                void()
            }
            SessionFunction::Notify => {
                let text = |column: &ArrayRef| match column.is_null(row) {
                    true => String::new(),
                    false => column.as_string::<i32>().value(row).to_owned(),
                };
                mail.notify(text(&columns[0]), text(&columns[1]))?;
                void()
            }
            SessionFunction::Lock(mode) => {
                locks.lock(key(columns, row)?, mode).await?;
                void()
            }
            SessionFunction::TryLock(mode) => truth(locks.try_lock(key(columns, row)?, mode)?),
            SessionFunction::Unlock { is_shared } => truth(locks.unlock(key(columns, row)?, is_shared)),
            SessionFunction::UnlockAll => {
                locks.unlock_all();
                void()
            }
        })
    }
}

/// A year: who sleeps longer is cancelled before.
const MAX_SLEEP_S: f64 = 365.0 * 86_400.0;

fn key(columns: &[ArrayRef], row: usize) -> Result<LockKey> {
    let number = |column: &ArrayRef| column.as_primitive::<Int64Type>().value(row);
    Ok(match columns {
        [one] => LockKey::One(number(one)),
        [class, object, ..] => {
            let half = |column: &ArrayRef| {
                i32::try_from(number(column))
                    .map_err(|_| SqlError::new(state::NUMERIC_OUT_OF_RANGE, "integer out of range"))
            };
            LockKey::Two(half(class)?, half(object)?)
        }
        [] => return Err(SqlError::new(state::INTERNAL, "a lock has a number").into()),
    })
}

fn shown(vars: &Vars, name: &str) -> Result<String, SqlError> {
    if is_engine_setting(name) {
        return Err(SqlError::unsupported(format!("current_setting of {name}"), format!("SHOW {name}")));
    }
    vars.get(name)
}

/// Errors: what is not of these settings alone.
fn set(settable: &Settable, name: &str, value: &str, is_local: bool) -> Result<(), SqlError> {
    let folded = name.to_ascii_lowercase();
    if is_engine_setting(&folded) || is_identity(&folded) {
        return Err(SqlError::unsupported(format!("set_config of {name}"), format!("SET {name} = value")));
    }
    let scope = if is_local { Scope::Transaction } else { Scope::Session };
    settable.change(scope, |vars| vars.set(name, Some(value)))
}
