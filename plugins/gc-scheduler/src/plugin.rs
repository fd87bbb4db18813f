use core_metadata::Database;
use core_plugin::{InitContext, Instance, Registration, types};

use crate::{Config, Scheduler};

/// The plugin `io.containerd.gc.v1.scheduler`; its instance is a [`Scheduler`].
pub fn registration() -> Registration {
    let init = |context: InitContext| async move {
        let config: Config = context.config()?;
        let database: Database = context.single(types::METADATA)?;
        let scheduler = Scheduler::over(&database, config.clone());
        let closing = scheduler.clone();
        Ok(Instance::new(scheduler)
            .export("PauseThreshold", config.pause_threshold.to_string())
            .export("DeletionThreshold", config.deletion_threshold.to_string())
            .export("MutationThreshold", config.mutation_threshold.to_string())
            .export("ScheduleDelay", core_types::duration::format(config.schedule_delay))
            .on_close(move || async move { closing.close() }))
    };
    Registration::new(types::GC, "scheduler", init).config(&Config::default()).requires(types::METADATA)
}
