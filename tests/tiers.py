"""Which tests `make check`, `make test` and `make test-all` run, and a guard for the first one.

`make check` runs the tests without a mark: they start no process, do not wait and take a second or two. `make test`
adds `slow`, `browser` and `kill`, `make test-all` the rest.
"""

from collections.abc import Iterator
import os
import sys

import pytest

MARKS = {
    "slow": "starts processes, sleeps, trains or compiles for seconds",
    "browser": "opens pages in Chromium",
    "kill": "kills processes, or fills disks",
    "compiler": "is about the text or the number of compiled programs, or about kernels that are interpreted",
    "cluster": "starts a Ray cluster",
    "gpu": "needs a GPU",
    "long": "a quick study, benchmark or attack",
}

MARKED = {
    "slow": [
        "test_actor_trust.py",
        "test_behaviour.py::test_a_training_tells_what_its_agents_do",
        "test_beginning.py",
        "test_bench.py::test_a_contender_that_dies_is_one_line",
        "test_bench.py::test_ratios_compare_the_same_round",
        "test_bench.py::test_the_clock_of_a_process_begins_before_its_imports",
        "test_callback.py",
        "test_check.py::test_the_command_tells_programs_and_people",
        "test_checkpoint_hostile.py",
        "test_cli.py::test_a_run_leaves_what_the_contract_names",
        "test_cli_describe.py",
        "test_choice.py::test_choice_and_replacement_are_continued_exactly",
        "test_choice.py::test_no_actor_is_replaced_before_it_is_time_or_by_a_worse_one",
        "test_choice.py::test_the_actor_of_the_first_state_plays_the_whole_episode",
        "test_choice.py::test_the_optimist_explores_with_noise_too",
        "test_choice.py::test_the_optimist_takes_the_highest_mean_plus_doubt_deviations",
        "test_choice.py::test_the_worst_actor_becomes_the_best_past_one",
        "test_cli_errors.py::test_a_real_process_says_the_same_in_any_terminal",
        "test_cli_errors.py::test_random_command_lines_work_or_explain_themselves",
        "test_cloud.py::test_a_cloud_without_weight_teaches_nothing_and_one_with_weight_does",
        "test_cloud.py::test_probes_begin_at_states_of_the_replay_and_stay_or_learn",
        "test_cloud.py::test_the_loss_of_the_cloud_is_the_loop_over_critics_policies_and_rows",
        "test_config.py::test_sizes_are_refused_before_memory_is_asked_for",
        "test_console.py",
        "test_confusions.py",
        "test_cost.py",
        "test_device.py::test_a_seed_is_the_same_whoever_runs_beside_it",
        "test_device.py::test_acting_uses_normalised_observations",
        "test_docs_snippets.py",
        "test_doctor.py",
        "test_env_faults.py::test_a_slow_but_lively_vector_is_no_hang",
        "test_env_faults.py::test_an_alarm_of_someone_else_is_left_alone",
        "test_envs_dmc.py::test_a_renderer_that_does_not_load_is_named",
        "test_envs_dmc.py::test_import_is_lazy_quiet_and_without_gl",
        "test_envs_dmc.py::test_restore_is_exact_on_every_task",
        "test_envs_frames.py::test_no_task_of_the_suite_does_more_in_a_frame_than_is_done_here",
        "test_examples.py",
        "test_exploration_critics.py::test_a_move_changes_values_at_its_policies_as_asked",
        "test_exploration_critics.py::test_a_standard_critic_is_a_functional_one_with_a_constant_code",
        "test_exploration_critics.py::test_functional_critics_find_the_exact_return_of_every_trained_policy",
        "test_exploration_ensembles.py::test_one_seed_after_the_other_is_all_side_by_side",
        "test_exploration_ensembles.py::test_without_data_priors_stay_and_actors_climb_them",
        "test_exploration_ensembles.py::test_worlds_are_their_tasks",
        "test_export.py::test_it_acts_as_the_run_does_and_is_smaller",
        "test_fac.py::test_a_critic_does_not_hear_of_another_critic",
        "test_fac.py::test_a_critic_step_moves_critics_and_targets_only",
        "test_fac.py::test_an_actor_step_moves_actors_only",
        "test_fac.py::test_every_critic_learns_from_every_actor_but_a_plain_one_from_its_own",
        "test_fac.py::test_one_update_is_g_critic_steps_then_one_actor_step",
        "test_fac.py::test_polyak_moves_the_two_delayed_parts_by_tau",
        "test_disk.py::test_folders_in_each_other_without_end_are_one_line",
        "test_fac.py::test_without_pairing_actors_hear_of_other_critics",
        "test_fsac.py",
        "test_golden.py",
        "test_habits.py::test_make_knows_how_to_run_each_command_of_the_workflow",
        "test_inspection_command.py::test_the_command_tells_what_it_found",
        "test_knowledge.py",
        "test_kernels_door.py",
        "test_logs.py",
        "test_losses.py::test_the_actor_gradient_is_the_finite_difference",
        "test_losses.py::test_the_actor_gradient_is_the_sum_of_its_two_terms",
        "test_losses.py::test_the_ensemble_loss_is_the_loop_over_critics_and_policies",
        "test_losses.py::test_the_target_sees_a_changed_encoder_but_sends_it_no_gradient",
        "test_networks.py::test_a_critic_is_the_joint_encoder_of_two_codes",
        "test_offline_data.py",
        "test_offline_evaluation.py",
        "test_offline_policies.py",
        "test_offline_runs.py",
        "test_own_agents.py",
        "test_offline_trust.py",
        "test_own_observations.py::test_a_controller_gets_the_dict_and_may_return_its_action_alone",
        "test_own_observations.py::test_a_value_far_from_the_training_says_so",
        "test_own_observations.py::test_several_dicts_are_a_list_or_stacked",
        "test_own_tasks.py",
        "test_packed.py",
        "test_partners.py",
        "test_priors.py::test_a_loaded_critic_is_valued_with_its_prior",
        "test_priors.py::test_a_prior_has_the_units_of_values_and_differs_by_state_action_and_draw",
        "test_priors.py::test_actors_climb_critic_and_prior_together",
        "test_priors.py::test_updates_leave_priors_alone_and_a_prior_reaches_its_own_critic_and_actor_only",
        "test_rank_command.py",
        "test_readme.py",
        "test_recipes.py",
        "test_replay_viewer.py::test_poses_in_the_page_are_those_of_mujoco",
        "test_replay_viewer.py::test_values_are_those_of_the_actors_own_critic_in_normalised_states",
        "test_replay_viewer_values.py::test_a_task_without_mujoco_has_traces_and_says_that_it_has_no_geometry",
        "test_runs.py::test_two_processes_cannot_train_in_one_run",
        "test_sac.py",
        "test_sick_trainings.py",
        "test_steering.py",
        "test_start.py::test_a_device_that_cannot_be_woken_is_reported_once_by_who_needs_it",
        "test_statistics.py",
        "test_strangers_runs.py",
        "test_strangers_tasks.py",
        "test_studies_sparse.py::test_a_finished_training_is_read_from_its_folder",
        "test_study.py::test_a_budget_asks_the_run_to_stop_and_leaves_the_rest",
        "test_study.py::test_a_file_of_ones_own_is_a_study",
        "test_study.py::test_a_record_of_trainings_keeps_what_was_recorded_before",
        "test_study.py::test_a_run_that_fails_is_named_and_the_others_go_on",
        "test_study.py::test_a_study_of_ones_own_has_a_quick_version",
        "test_study.py::test_ctrl_c_lets_the_run_save",
        "test_study.py::test_how_far_a_training_is_is_said_while_it_runs",
        "test_td3.py::test_the_delayed_actor_and_its_targets_move_every_second_iteration",
        "test_theory_actor_critic.py",
        "test_theory_evaluation.py::test_blocks_do_not_change_what_is_computed",
        "test_theory_evaluation.py::test_sampled_weights_approach_the_exact_ones",
        "test_theory_evaluation.py::test_the_exact_version_finds_the_true_values_without_a_common_action",
        "test_theory_mdp.py::test_the_gradient_matches_finite_differences",
        "test_theory_rivals.py::test_all_learn_on_policy",
        "test_theory_rivals.py::test_rivals_side_by_side_learn_as_they_do_alone",
        "test_theory_rivals.py::test_semi_gradient_diverges_on_baird_and_corrections_do_not",
        "test_theory_trust.py::test_coefficients_bound_every_weight_error_and_the_exact_ones_are_reached",
        "test_theory_trust.py::test_coverage_of_a_policy_by_itself_is_the_rank",
        "test_theory_trust.py::test_delta_is_infinite_outside_the_range_of_the_anchor",
        "test_theory_trust.py::test_gradient_parts_give_the_exact_gradient",
        "test_to_onnx.py::test_the_best_actor_is_the_one_that_an_evaluation_of_now_numbers_as_the_highest",
        "test_to_onnx.py::test_the_command_writes_a_file_that_the_example_uses_without_jax",
        "test_to_onnx.py::test_trained_policies_differ_by_the_rounding_of_single_precision",
        "test_trackers.py::test_the_real_tensorboard_reads_what_is_written",
        "test_trackers.py::test_the_real_tracker_takes_these_calls",
        "test_trackers.py::test_the_real_trackio_takes_these_calls",
        "test_success.py::test_from_training_to_the_picture",
        "test_success.py::test_without_it_the_picture_says_why",
        "test_task_arguments.py::test_a_run_keeps_them_for_every_command",
        "test_task_arguments.py::test_worker_processes_build_the_same",
        "test_to_onnx.py::test_a_difference_is_noticed",
        "test_to_onnx.py::test_rank_reads_the_file_as_the_same_policy",
        "test_train.py::test_a_stopped_and_continued_training_is_the_uninterrupted_one",
        "test_train.py::test_evaluation_is_repeatable_and_on_episodes_of_its_own",
        "test_trained.py::test_a_loaded_agent_acts_as_its_policy_does_in_the_loop",
        "test_trained_critics.py::test_the_gradient_is_the_slope_of_the_value",
        "test_trained_critics.py::test_the_second_term_is_the_part_through_the_policy_input",
        "test_trained_critics.py::test_values_are_those_of_each_critic",
        "test_tuning.py::test_the_command_trains_and_writes_a_table_and_a_picture",
        "test_unsound_checkpoints.py",
        "test_video.py",
        "test_warmup.py::test_a_warm_up_stopped_anywhere_is_the_uninterrupted_one",
        "test_watch_server.py",
        "test_workers.py",
    ],
    "browser": [
        "test_comparison.py::test_a_browser_shows_the_whole_report",
        "test_inspection_command.py::test_the_page_draws_without_errors_and_shows_names_as_text",
        "test_replay_viewer.py::test_a_browser_draws_a_thousand_steps_at_thirty_frames_a_second",
        "test_replay_viewer.py::test_a_browser_shows_a_strangers_text_and_runs_none_of_it",
        "test_replay_viewer.py::test_mouse_touch_and_keys_do_what_the_page_says",
        "test_replay_viewer.py::test_the_picture_shows_the_body_and_another_moment_another_one",
        "test_replay_viewer.py::test_without_webgl_the_page_says_so_and_still_shows_the_traces",
        "test_replay_viewer_scene.py::test_matrices_of_the_page_by_hand",
        "test_watch_server.py::test_the_page_shows_names_as_text_and_makes_no_error",
    ],
    "kill": [
        "test_checkpoint_killed.py",
        "test_cli.py::test_a_killed_training_continues_by_the_same_command",
        "test_cli.py::test_a_terminated_training_is_saved_and_resumes",
        "test_disk_full.py",
        "test_reliability.py",
        "test_workers_killed.py",
    ],
    "compiler": [
        "test_backend.py::test_lowering_a_kernel_searches_for_no_module_in_vain",
        "test_device.py::test_the_ring_is_never_copied",
        "test_error_kernels.py",
        "test_fac.py::test_an_iteration_that_is_written_out_for_a_gpu_is_the_same",
        "test_few_programs.py",
        "test_kept_programs.py::test_a_second_start_traces_nothing_and_trains_the_same",
        "test_kept_programs.py::test_updates_take_over_their_arrays",
        "test_precision.py",
        "test_start.py::test_programs_compiled_ahead_train_as_those_compiled_in_the_loop",
        "test_start.py::test_losses_evaluations_and_a_resume_compile_no_program_of_the_loop_again",
        "test_start.py::test_the_loop_itself_compiles_next_to_nothing",
    ],
    "cluster": [
        "test_cluster.py",
        "test_tuning.py::test_trials_on_a_cluster_are_those_of_this_machine",
    ],
    "gpu": [
        "test_gpu.py",
    ],
    "long": [
        "test_studies_knowing.py::test_the_quick_version_trains_asks_and_reports",
        "test_bench.py::test_an_environment_that_cannot_be_built_is_one_line",
        "test_bench.py::test_the_loop_bench_tells_frames_per_second_and_waiting",
        "test_bench.py::test_the_own_worker_trains_when_asked",
        "test_bench.py::test_the_update_bench_has_rows_with_floors",
        "test_exploration_calibration.py",
        "test_gym_mujoco.py::test_a_task_is_trained_continued_exactly_and_replayed",
        "test_offline_evaluation.py::test_a_linear_quadratic_task_is_valued_within_two_percent",
        "test_offline_strangers.py",
        "test_reliability.py::test_a_difference_would_be_seen",
        "test_reliability.py::test_a_disk_that_fails_is_survived",
        "test_reliability.py::test_killed_twice_and_continued_to_the_same_end",
        "test_reliability.py::test_memory_is_measured",
        "test_reliability.py::test_mutants_and_the_hostile_corpus",
        "test_reliability.py::test_random_command_lines",
        "test_strangers.py",
        "test_studies_exploration.py::test_calibration_on_three_data_sets",
        "test_studies_exploration.py::test_riverswim_as_json",
        "test_studies_theory.py::test_small_studies_find_the_terms_of_the_bound",
    ],
}
"""Files (`test_gpu.py`) and tests (`test_gpu.py::test_name`) by mark, besides those with a decorator."""

STARTS = {"subprocess.Popen", "os.fork", "os.posix_spawn", "os.system"}

HARMLESS = {"git", "uname"}
"""A new run asks them for the commit and the machine."""


class Guard:
    """Notes the first process that is started while it watches."""

    def __init__(self):
        self.watching, self.started = False, ""
        sys.addaudithook(self)

    def __call__(self, event: str, arguments: tuple) -> None:
        if self.watching and event in STARTS:
            program = os.path.basename(str(arguments[0])) if arguments else event
            harmless = program in HARMLESS or "glfwGetVersion" in str(
                arguments
            )  # what the first import of glfw does
            self.started = self.started or ("" if harmless else program)


GUARD = Guard()


def pytest_configure(config: pytest.Config) -> None:
    for mark, meaning in MARKS.items():
        config.addinivalue_line("markers", f"{mark}: {meaning}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        names = {item.path.name, f"{item.path.name}::{getattr(item, 'originalname', item.name)}"}
        for mark in (mark for mark, marked in MARKED.items() if names & {*marked}):
            item.add_marker(mark)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    GUARD.started, GUARD.watching = "", not any(item.get_closest_marker(mark) for mark in MARKS)
    try:
        return (yield)
    finally:
        GUARD.watching = False


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    result = yield
    if GUARD.started:
        pytest.fail(f"{item.nodeid} starts {GUARD.started}: mark it, see tests/tiers.py", pytrace=False)
    return result
