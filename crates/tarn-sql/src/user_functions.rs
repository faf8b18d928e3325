//! Which function does a call mean? Of those of its name that take so many arguments, the one that PostgreSQL would
//! call: the one that takes their very types; else the one that most of them are of, then the one whose types are
//! preferred, then the one that takes texts where a constant has no type (manual, 10.3).

use std::sync::Arc;

use datafusion::arrow::datatypes::Field;
use datafusion::error::Result as PlanResult;
use tarn_node::functions::{Body, FunctionSource, Functions, Mode, UserFunction};
use tarn_query::{Argument, FunctionParameter, ResolvedFunction, ResultShape, UserFunctions};

use crate::error::{SqlError, state};
use crate::function_types::{becomes, category, is_polymorphic, is_preferred, item_of};
use crate::rows::{long_name, pg_type};

/// The functions of a node, as the engine asks for them.
#[derive(Debug)]
pub struct NodeFunctions(pub Arc<Functions>);

impl UserFunctions for NodeFunctions {
    fn is_empty(&self) -> bool {
        self.0.all().is_empty()
    }

    fn named(&self, name: &str) -> Vec<Arc<tarn_query::UserFunction>> {
        self.0.named(name).iter().map(|function| Arc::new(of_engine(function))).collect()
    }

    fn choose(&self, name: &str, arguments: &[Argument]) -> PlanResult<ResolvedFunction> {
        Ok(chosen(name, &self.named(name), arguments)?)
    }

    fn type_name(&self, field: &Field) -> Option<String> {
        pg_type(field).ok().map(|of| long_name(&of))
    }
}

/// The query that a body is.
pub fn query_of(body: &Body) -> String {
    match body {
        Body::Text(text) | Body::Atomic(text) => text.clone(),
        Body::Return(expr) => format!("SELECT {expr}"),
    }
}

/// A function as the engine knows it.
pub fn of_engine(function: &UserFunction) -> tarn_query::UserFunction {
    engine_function(function.id.0, &function.name, &function.written)
}

/// As [`of_engine`], of what is written.
pub fn engine_function(id: u32, name: &str, written: &FunctionSource) -> tarn_query::UserFunction {
    let taken = written.taken().map(|parameter| FunctionParameter {
        name: parameter.name.clone(),
        data_type: parameter.data_type.clone(),
        default: parameter.default.clone(),
    });
    let columns = match &written.columns[..] {
        [] => vec![(None, written.returns.clone())],
        columns => columns.iter().map(|column| (Some(column.name.clone()), column.data_type.clone())).collect(),
    };
    let is_value = columns.len() == 1 && (written.columns.is_empty() || written.parameters.iter().any(is_out));
    tarn_query::UserFunction {
        id,
        name: name.to_owned(),
        parameters: taken.collect(),
        gives: match (written.is_set, is_value) {
            (true, _) => ResultShape::Rows,
            (false, true) => ResultShape::Value,
            (false, false) => ResultShape::Row,
        },
        columns,
        is_strict: written.is_strict,
        query: query_of(&written.body),
    }
}

fn is_out(parameter: &tarn_node::functions::Parameter) -> bool {
    matches!(parameter.mode, Mode::Out | Mode::InOut)
}

/// One that takes the arguments.
struct Candidate<'a> {
    function: &'a Arc<tarn_query::UserFunction>,
    /// Of its parameters; what stands for any type is what it stands for.
    types: Vec<String>,
    element: Option<String>,
    n_defaults: usize,
}

/// `42883` and `42725`, as in PostgreSQL.
fn chosen(
    name: &str,
    functions: &[Arc<tarn_query::UserFunction>],
    arguments: &[Argument],
) -> Result<ResolvedFunction, SqlError> {
    let types: Vec<Option<String>> = arguments.iter().map(type_of).collect();
    let mut undetermined = false;
    let mut candidates: Vec<Candidate<'_>> = vec![];
    for function in functions.iter().filter(|function| function.takes(types.len())) {
        match candidate(function, &types) {
            Ok(Some(candidate)) => candidates.push(candidate),
            Ok(None) => {}
            Err(UndeterminedTypes) => undetermined = true,
        }
    }
    let shown = || {
        let types = types.iter().map(|data_type| data_type.as_deref().unwrap_or("unknown"));
        format!("function {name}({})", types.collect::<Vec<_>>().join(", "))
    };
    if candidates.is_empty() && undetermined {
        let message = "could not determine polymorphic type because input has type unknown";
        return Err(SqlError::new(state::DATATYPE_MISMATCH, message));
    }
    match best(candidates, &types) {
        OverloadChoice::One(candidate) => Ok(candidate.chosen()),
        OverloadChoice::None => Err(SqlError::new(state::UNDEFINED_FUNCTION, format!("{} does not exist", shown()))
            .with_hint(
                "No function matches the given name and argument types. You might need to add explicit type casts.",
            )),
        OverloadChoice::Several => Err(SqlError::new(state::AMBIGUOUS_FUNCTION, format!("{} is not unique", shown()))
            .with_hint("Could not choose a best candidate function. You might need to add explicit type casts.")),
    }
}

/// `None`: it is not known.
fn type_of(argument: &Argument) -> Option<String> {
    if argument.is_unknown {
        return None;
    }
    pg_type(&argument.field).ok().map(|of| long_name(&of))
}

/// Only constants without a type stand for what may be any type.
struct UndeterminedTypes;

/// `Ok(None)`: it does not take them.
fn candidate<'a>(
    function: &'a Arc<tarn_query::UserFunction>,
    types: &[Option<String>],
) -> Result<Option<Candidate<'a>>, UndeterminedTypes> {
    let mut element: Option<String> = None;
    let mut is_asked = false;
    for (parameter, given) in function.parameters.iter().zip(types) {
        if !is_polymorphic(&parameter.data_type) {
            match given {
                Some(given) if !becomes(given, &parameter.data_type) => return Ok(None),
                _ => continue,
            }
        }
        is_asked = true;
        let Some(given) = given else { continue };
        let of = match parameter.data_type.as_str() {
            "anyarray" => match item_of(given) {
                Some(item) => item,
                None => return Ok(None),
            },
            "anynonarray" if given.ends_with("[]") => return Ok(None),
            _ => given.as_str(),
        };
        if element.get_or_insert_with(|| of.to_owned()) != of {
            return Ok(None);
        }
    }
    if is_asked && element.is_none() {
        return Err(UndeterminedTypes);
    }
    let of = |data_type: &String| stands_for(data_type, element.as_deref());
    let parameters = function.parameters.iter().map(|parameter| of(&parameter.data_type)).collect();
    let n_defaults = function.parameters.len() - types.len();
    Ok(Some(Candidate { function, types: parameters, element, n_defaults }))
}

fn stands_for(data_type: &str, element: Option<&str>) -> String {
    match (data_type, element) {
        ("anyelement" | "anynonarray", Some(element)) => element.to_owned(),
        ("anyarray", Some(element)) => format!("{element}[]"),
        (data_type, _) => data_type.to_owned(),
    }
}

impl Candidate<'_> {
    fn chosen(self) -> ResolvedFunction {
        let given = self.function.columns.iter();
        let column_types = given.map(|(_, data_type)| stands_for(data_type, self.element.as_deref())).collect();
        ResolvedFunction { function: Arc::clone(self.function), parameter_types: self.types, column_types }
    }
}

enum OverloadChoice<'a> {
    One(Candidate<'a>),
    None,
    Several,
}

/// What a constant without a type is of, at a place: the category of texts if a candidate takes one, else the only one
/// that there is, and whether a preferred type of it is among them. `None`: that is open.
fn wanted(candidates: &[Candidate<'_>], at: usize) -> Option<(usize, String, bool)> {
    let categories = || candidates.iter().map(|candidate| category(&candidate.types[at]));
    let first = categories().next()?;
    let of = match categories().any(|of| of == "S") {
        true => "S",
        false => categories().all(|of| of == first).then_some(first)?,
    };
    let mut types = candidates.iter().map(|candidate| &candidate.types[at]);
    Some((at, of.to_owned(), types.any(|data_type| category(data_type) == of && is_preferred(data_type))))
}

fn best<'a>(mut candidates: Vec<Candidate<'a>>, types: &[Option<String>]) -> OverloadChoice<'a> {
    // One that says all of its arguments is meant before one that has more.
    keep_most(&mut candidates, |candidate| usize::MAX - candidate.n_defaults);
    let n_exact = |candidate: &Candidate<'_>| {
        let same = |(of, given): &(&String, &Option<String>)| given.as_ref() == Some(*of);
        candidate.types.iter().zip(types).filter(same).count()
    };
    keep_most(&mut candidates, n_exact);
    if candidates.len() > 1 {
        let n_preferred = |candidate: &Candidate<'_>| {
            let fits = |(of, given): &(&String, &Option<String>)| {
                given
                    .as_ref()
                    .is_some_and(|given| given == *of || (category(given) == category(of) && is_preferred(of)))
            };
            candidate.types.iter().zip(types).filter(fits).count()
        };
        keep_most(&mut candidates, n_preferred);
    }
    if candidates.len() > 1 {
        let of_unknown = types.iter().enumerate().filter(|(_, given)| given.is_none()).map(|(at, _)| at);
        let wanted: Option<Vec<(usize, String, bool)>> = of_unknown.map(|at| wanted(&candidates, at)).collect();
        // All places decide together: where no candidate has what each wants, none is left out.
        let fits = |candidate: &Candidate<'_>| {
            wanted.iter().flatten().all(|(at, of, preferred)| {
                let data_type = &candidate.types[*at];
                category(data_type) == of && (!preferred || is_preferred(data_type))
            })
        };
        if candidates.iter().any(fits) {
            candidates.retain(fits);
        }
    }
    if candidates.len() > 1 {
        // What is not known is of the type that all others are of.
        let mut known = types.iter().flatten();
        if let Some(first) = known.next()
            && known.all(|other| other == first)
            && types.iter().any(Option::is_none)
        {
            let all_of_it: Vec<usize> = (0..candidates.len())
                .filter(|at| candidates[*at].types.iter().take(types.len()).all(|of| of == first || becomes(first, of)))
                .collect();
            if let [only] = all_of_it[..] {
                return OverloadChoice::One(candidates.swap_remove(only));
            }
        }
    }
    match candidates.len() {
        0 => OverloadChoice::None,
        1 => candidates.pop().map_or(OverloadChoice::None, OverloadChoice::One),
        _ => OverloadChoice::Several,
    }
}

fn keep_most(candidates: &mut Vec<Candidate<'_>>, count: impl Fn(&Candidate<'_>) -> usize) {
    if let Some(most) = candidates.iter().map(&count).max() {
        candidates.retain(|candidate| count(candidate) == most);
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::DataType;

    use super::*;

    fn function(id: u32, types: &[&str], gives: &str) -> Arc<tarn_query::UserFunction> {
        let taken = types.iter().map(|of| FunctionParameter { name: None, data_type: (*of).to_owned(), default: None });
        Arc::new(tarn_query::UserFunction {
            id,
            name: "f".into(),
            parameters: taken.collect(),
            gives: ResultShape::Value,
            columns: vec![(None, gives.to_owned())],
            is_strict: false,
            query: String::new(),
        })
    }

    fn argument(of: Option<DataType>) -> Argument {
        let field = Arc::new(Field::new("", of.clone().unwrap_or(DataType::Utf8), true));
        Argument { field, is_unknown: of.is_none() }
    }

    #[test]
    fn calls_mean_what_they_mean_in_postgres() {
        let functions = [
            function(1, &["integer"], "integer"),
            function(2, &["text"], "text"),
            function(3, &["numeric", "numeric"], "numeric"),
            function(4, &["double precision", "double precision"], "real"),
        ];
        let id = |arguments: &[Option<DataType>]| {
            let arguments: Vec<Argument> = arguments.iter().cloned().map(argument).collect();
            chosen("f", &functions, &arguments).map(|chosen| chosen.function.id).map_err(|error| error.state())
        };
        assert_eq!(id(&[Some(DataType::Int32)]), Ok(1));
        assert_eq!(id(&[Some(DataType::Int16)]), Ok(1));
        assert_eq!(id(&[None]), Ok(2));
        assert_eq!(id(&[Some(DataType::Int64)]), Err(state::UNDEFINED_FUNCTION));
        assert_eq!(id(&[Some(DataType::Int32), Some(DataType::Int32)]), Ok(4));
        let two = [function(1, &["integer", "text"], "integer"), function(2, &["text", "integer"], "integer")];
        let unknown = [argument(None), argument(None)];
        let error = chosen("f", &two, &unknown).unwrap_err();
        assert_eq!(error.message(), "function f(unknown, unknown) is not unique");
    }

    #[test]
    fn any_type_is_one_type_at_each_call() {
        let functions = [function(1, &["anyelement", "anyarray"], "anyarray")];
        let list = DataType::new_list(DataType::Int32, true);
        let called = chosen("f", &functions, &[argument(Some(DataType::Int32)), argument(Some(list.clone()))]).unwrap();
        assert_eq!(
            (called.parameter_types, called.column_types),
            (vec!["integer".to_owned(), "integer[]".to_owned()], vec!["integer[]".to_owned()])
        );
        let other = chosen("f", &functions, &[argument(Some(DataType::Utf8)), argument(Some(list))]).unwrap_err();
        assert_eq!(other.state(), state::UNDEFINED_FUNCTION);
        let unknown = chosen("f", &functions, &[argument(None), argument(None)]).unwrap_err();
        assert_eq!(unknown.state(), state::DATATYPE_MISMATCH);
    }
}
