use anyhow::Result;

/// Lines of cells. A cell that is not the last of its line belongs to a column, which is as wide as its widest
/// cell in lines that follow each other; the last cell of a line stands free.
#[derive(Debug)]
pub(crate) struct Table {
    min_width: usize,
    padding: usize,
    tabs: bool,
    lines: Vec<Vec<String>>,
}

const TAB: usize = 8;

impl Table {
    /// Columns at least `min_width` wide with `padding` blanks between.
    pub(crate) fn new(min_width: usize, padding: usize) -> Self {
        Self { min_width, padding, tabs: false, lines: Vec::new() }
    }

    /// Columns of whole tab stops, filled with tabs.
    pub(crate) fn with_tabs() -> Self {
        Self { min_width: 1, padding: 1, tabs: true, lines: Vec::new() }
    }

    /// Adds a line whose cells all belong to columns.
    pub(crate) fn row<T: ToString>(&mut self, cells: impl IntoIterator<Item = T>) {
        let mut line: Vec<String> = cells.into_iter().map(|cell| cell.to_string()).collect();
        line.push(String::new());
        self.lines.push(line);
    }

    /// Adds a line whose last cell stands free.
    pub(crate) fn open_row<T: ToString>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.lines.push(cells.into_iter().map(|cell| cell.to_string()).collect());
    }

    /// The table as text.
    pub(crate) fn render(&self) -> String {
        let mut widths: Vec<Vec<usize>> = self.lines.iter().map(|line| vec![0; line.len()]).collect();
        self.measure(0, self.lines.len(), 0, &mut widths);
        let mut text = String::new();
        for (line, widths) in self.lines.iter().zip(&widths) {
            for (at, cell) in line.iter().enumerate() {
                text.push_str(cell);
                if at + 1 < line.len() {
                    self.fill(&mut text, widths[at] - cell.chars().count());
                }
            }
            text.push('\n');
        }
        text
    }

    /// Writes the table to standard output.
    pub(crate) fn print(&self) -> Result<()> {
        super::text(&self.render())
    }

    fn measure(&self, from: usize, to: usize, column: usize, widths: &mut [Vec<usize>]) {
        let in_column = |line: usize| column + 1 < self.lines[line].len();
        let mut start = from;
        while start < to {
            if !in_column(start) {
                start += 1;
                continue;
            }
            let end = (start..to).find(|line| !in_column(*line)).unwrap_or(to);
            let widest = (start..end).map(|line| self.lines[line][column].chars().count()).max().unwrap_or(0);
            let mut width = (widest + self.padding).max(self.min_width);
            if self.tabs {
                width = width.div_ceil(TAB) * TAB;
            }
            for line in &mut widths[start..end] {
                line[column] = width;
            }
            self.measure(start, end, column + 1, widths);
            start = end;
        }
    }

    fn fill(&self, text: &mut String, missing: usize) {
        let (filler, count) = if self.tabs { ('\t', missing.div_ceil(TAB)) } else { (' ', missing) };
        text.extend(std::iter::repeat_n(filler, count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_a_free_cell_is_not_padded() {
        let mut table = Table::new(4, 4);
        table.row(["TASK", "PID", "STATUS"]);
        table.open_row(["web", "12345", "RUNNING"]);
        table.open_row(["a-long-name", "7", "STOPPED"]);
        assert_eq!(
            table.render(),
            "TASK           PID      STATUS    \nweb            12345    RUNNING\na-long-name    7        STOPPED\n"
        );
    }

    #[test]
    fn an_empty_table_is_its_head() {
        let mut table = Table::new(4, 4);
        table.row(["CONTAINER", "IMAGE", "RUNTIME"]);
        assert_eq!(table.render(), "CONTAINER    IMAGE    RUNTIME    \n");
    }

    #[test]
    fn tabs_fill_whole_stops() {
        let mut table = Table::with_tabs();
        table.open_row(["DIGEST", "SIZE", "LABELS"]);
        table.open_row(["sha256:abcdef", "1kB", "-"]);
        assert_eq!(table.render(), "DIGEST\t\tSIZE\tLABELS\nsha256:abcdef\t1kB\t-\n");
    }
}
