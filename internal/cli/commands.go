// SPDX-License-Identifier: Apache-2.0

package cli

import "github.com/spf13/cobra"

// addCommands lists every command. Verbs that take a kind (create, get, delete, ...) are groups of one command a kind.
func addCommands(a *app, root *cobra.Command) {
	root.AddCommand(
		newCreateCommand(a),
		newGetCommand(a),
		newReplaceCommand(a),
		newEditCommand(a),
		newPlanCommand(a),
		newPreflightCommand(a),
		newApplyCommand(a),
		newDiffCommand(a),
		newDriftCommand(a),
		newGroupCommand(
			"delete",
			"Delete a cluster",
			groupCluster,
			newDeleteClusterCommand(a),
		),
		newGroupCommand(
			"validate",
			"Check that a cluster is healthy",
			groupCluster,
			newValidateClusterCommand(a),
		),
		newExportCommand(a),
		newRenderCommand(a),
		newStateCommand(a),
		newIAMCommand(a),
		newHistoryCommand(a),
		newUnlockCommand(a),
		newRegionCommand(a),
		newAssetsCommand(a),
		newDemoCommand(a),
		newVersionCommand(a),
	)
}
