//! Which type is one that is written in a statement? That of columns: microseconds where DataFusion has nanoseconds,
//! which end in the year 2262, large bytes where it knows no `inet`, and bytes as `coalesce` and its kin take them. The
//! instants of a cast are UTC's, as those of tables.

use std::sync::Arc;

use arrow::datatypes::{DataType as ArrowType, Field, FieldRef, IntervalUnit, TimeUnit};
use datafusion::error::Result;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::sql::sqlparser::ast::{DataType, Ident, ObjectName, ObjectNamePart, TimezoneInfo};

use crate::parser::fold;

/// The types that are not DataFusion's.
#[derive(Debug)]
pub(crate) struct WrittenTypes {
    /// Those of the front end.
    pub more: Option<Arc<dyn TypePlanner>>,
}

impl TypePlanner for WrittenTypes {
    fn plan_type_field(&self, named: &DataType) -> Result<Option<FieldRef>> {
        use TimezoneInfo::{None as Bare, Tz, WithTimeZone, WithoutTimeZone};
        let arrow = match named {
            DataType::Bytea => ArrowType::BinaryView,
            DataType::Timestamp(_, Bare | WithoutTimeZone) => ArrowType::Timestamp(TimeUnit::Microsecond, None),
            DataType::Timestamp(_, Tz | WithTimeZone) => {
                ArrowType::Timestamp(TimeUnit::Microsecond, Some(tarn_types::data_type::UTC.into()))
            }
            DataType::Time(_, Bare | WithoutTimeZone) => ArrowType::Time64(TimeUnit::Microsecond),
            // What its fields leave of a value is the front end's to say.
            DataType::Interval { .. } => ArrowType::Interval(IntervalUnit::MonthDayNano),
            named if is_inet(named) => ArrowType::LargeBinary,
            named => return self.more.as_ref().map_or(Ok(None), |more| more.plan_type_field(named)),
        };
        Ok(Some(Arc::new(Field::new("", arrow, true))))
    }
}

const INET: &str = "inet";

/// `inet`, as a statement names it.
pub fn inet() -> DataType {
    DataType::Custom(ObjectName::from(vec![Ident::new(INET)]), vec![])
}

/// Whether a type is called `inet`, which the grammar takes for one of somebody's own.
pub fn is_inet(named: &DataType) -> bool {
    match named {
        DataType::Custom(name, modifiers) if modifiers.is_empty() => {
            let parts: Vec<String> = name.0.iter().filter_map(ObjectNamePart::as_ident).map(fold).collect();
            match &parts[..] {
                [name] => name == INET,
                [schema, name] => schema == "pg_catalog" && name == INET,
                _ => false,
            }
        }
        _ => false,
    }
}
