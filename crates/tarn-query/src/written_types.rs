//! Which type is one that is written in a statement? That of columns: microseconds where DataFusion has nanoseconds,
//! which end in the year 2262, and bytes as `coalesce` and its kin take them. The instants of a cast are UTC's, as
//! those of tables.

use std::sync::Arc;

use arrow::datatypes::{DataType as ArrowType, Field, FieldRef, IntervalUnit, TimeUnit};
use datafusion::error::Result;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::sql::sqlparser::ast::{DataType, TimezoneInfo};

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
            named => return self.more.as_ref().map_or(Ok(None), |more| more.plan_type_field(named)),
        };
        Ok(Some(Arc::new(Field::new("", arrow, true))))
    }
}
