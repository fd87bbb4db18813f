//! The filter language of list requests.
/// A filter.
pub struct Filter;
