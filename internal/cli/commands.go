// SPDX-License-Identifier: Apache-2.0

package cli

import "github.com/spf13/cobra"

// addCommands adds every command. Verbs with a kind (create, get, delete, ...) are groups with a command
// for each kind.
func addCommands(a *app, root *cobra.Command) {
	root.AddCommand(
		newCreateCommand(a),
		newGetCommand(a),
		newReplaceCommand(a),
		newEditCommand(a),
		newExplainCommand(a),
		newPlanCommand(a),
		newPreflightCommand(a),
		newApplyCommand(a),
		newDiffCommand(a),
		newDriftCommand(a),
		newGroupCommand(
			"delete",
			"Delete a cluster or an instance group",
			groupCluster,
			newDeleteClusterCommand(a),
			newDeleteGroupCommand(a),
		),
		newGroupCommand(
			"validate",
			"Check that a cluster is healthy",
			groupCluster,
			newValidateClusterCommand(a),
		),
		newGroupCommand(
			"rolling-update",
			"Replace the machines of a running cluster",
			groupCluster,
			newRollingUpdateClusterCommand(a),
			newRollingUpdateStatusCommand(a),
		),
		newGroupCommand(
			"upgrade",
			"Upgrade Kubernetes on a running cluster",
			groupCluster,
			newUpgradeClusterCommand(a),
		),
		newEtcdCommand(a),
		newAddonsCommand(a),
		newLogsCommand(a),
		newSSHCommand(a),
		newSupportBundleCommand(a),
		newExportCommand(a),
		newTokenCommand(a),
		newRenderCommand(a),
		newStateCommand(a),
		newIAMCommand(a),
		newHistoryCommand(a),
		newUnlockCommand(a),
		newRegionCommand(a),
		newAssetsCommand(a),
		newDemoCommand(a),
		newConfigCommand(a),
		newCompletionCommand(a),
		newVersionCommand(a),
	)
}
