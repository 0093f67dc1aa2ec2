// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster/manifests"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// findingPrefix begins the lines that edit itself writes into the file and removes again.
const findingPrefix = "#! "

const editLong = `Open a manifest of the state store in $VISUAL or $EDITOR (default vi). If something in it is wrong it is opened again
with what is wrong at its top; to give up, leave it as it is. Nothing is lost: if it cannot be written, the file stays,
and its name is printed. AWS is changed by 'slipway apply' only.`

func newEditCommand(a *app) *cobra.Command {
	return newGroupCommand(
		"edit",
		"Edit a manifest in your editor",
		groupCluster,
		newEditClusterCommand(a),
		newEditGroupCommand(a),
	)
}

func newEditClusterCommand(a *app) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:     "cluster [NAME]",
		Short:   "Edit the Cluster manifest in your editor",
		Long:    editLong + exitStatusHelp(),
		Example: "  slipway edit cluster demo",
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := a.clusterName(args, name)
			if err != nil {
				return err
			}

			return a.runEdit(cmd.Context(), name, manifest.ClusterKey(name))
		},
	}

	addNameFlag(cmd, &name)
	a.addYesFlag(cmd)
	a.addLockFlag(cmd)
	a.addAssetsFlag(cmd)

	return cmd
}

func newEditGroupCommand(a *app) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:     "group GROUP",
		Aliases: []string{"instancegroup", "ig"},
		Short:   "Edit an InstanceGroup manifest in your editor",
		Long:    editLong + exitStatusHelp(),
		Example: "  slipway edit group workers --name demo",
		Args:    requireOneArgument("GROUP"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := a.clusterName(nil, name)
			if err != nil {
				return err
			}

			return a.runEdit(cmd.Context(), name, manifest.GroupKey(name, args[0]))
		},
	}

	cmd.Flags().StringVar(&name, "name", "", "the cluster (SLIPWAY_CLUSTER)")
	a.addYesFlag(cmd)
	a.addLockFlag(cmd)
	a.addAssetsFlag(cmd)

	return cmd
}

func (a *app) runEdit(ctx context.Context, cluster, key string) error {
	s, _, err := a.stores().State(ctx)
	if err != nil {
		return err
	}

	c, err := manifests.LoadChange(ctx, s, cluster, a.catalogSource())
	if err != nil {
		return err
	}

	o, err := s.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return withHint(err, "see: slipway get groups "+cluster)
	}

	if err != nil {
		return err
	}

	c.SetETag(key, o.ETag)
	file, err := os.CreateTemp("", "slipway-edit-*.yaml")
	if err != nil {
		return fmt.Errorf("create a file to edit: %w", err)
	}

	if err := file.Close(); err != nil {
		return fmt.Errorf("create a file to edit: %w", err)
	}

	e := manifestEditor{app: a, change: c, file: file.Name(), original: o.Body}
	if err := e.editUntilValid(ctx); err != nil {
		return withHint(err, "what you wrote is in "+e.file)
	}

	return os.Remove(e.file)
}

// manifestEditor opens one document in an editor until it is valid or unchanged.
type manifestEditor struct {
	app      *app
	change   manifests.Change
	file     string
	original []byte
}

func (e manifestEditor) editUntilValid(ctx context.Context) error {
	shown := e.original
	for {
		text, err := e.openInEditor(ctx, shown)
		if err != nil {
			return err
		}

		if bytes.Equal(text, shown) {
			if bytes.Equal(text, e.original) {
				e.app.printMessage("nothing was changed")
				return nil
			}

			return errors.New("nothing was changed: it was left as it is, with its errors")
		}

		given, findings := manifest.Parse(stripFindings(text))
		e.checkSameNames(given, &findings)
		after, findings := e.change.Check(given, findings)
		if findings.Err() == nil {
			e.app.printFindings(findings)
			return e.app.confirmAndChange(ctx, e.change, "edit", after)
		}

		shown = append(commentFindings(findings), stripFindings(text)...)
	}
}

// checkSameNames refuses a changed name, which would be another document.
func (e manifestEditor) checkSameNames(given manifest.Set, findings *diag.Findings) {
	was, _ := manifest.Parse(e.original)
	if given.Cluster.Metadata.Name != was.Cluster.Metadata.Name {
		findings.Errorf(
			"metadata.name",
			given.Cluster.Metadata.Name,
			"keep the name; create another cluster with: slipway create cluster",
			"is not the name of the document being edited",
		)
	}

	for _, g := range was.Groups {
		if _, there := given.Group(g.Metadata.Name); !there {
			findings.Errorf(
				"metadata.name",
				"",
				"put back "+g.Metadata.Name,
				"is not the name of the document being edited",
			)
		}
	}
}

// openInEditor opens text in the editor of the user and returns the edited text.
func (e manifestEditor) openInEditor(ctx context.Context, text []byte) ([]byte, error) {
	if err := os.WriteFile(e.file, text, 0o600); err != nil {
		return nil, fmt.Errorf("write the file to edit: %w", err)
	}

	command := e.app.Getenv("VISUAL")
	if command == "" {
		command = e.app.Getenv("EDITOR")
	}

	if command == "" {
		command = "vi"
	}

	// Through a shell, since EDITOR may hold arguments, such as "code --wait".
	run := exec.CommandContext(ctx, "sh", "-c", command+` "$1"`, "sh", e.file)
	run.Stdin = e.app.Stdin
	run.Stdout = e.app.Stdout
	run.Stderr = e.app.Stderr
	if err := run.Run(); err != nil {
		return nil, withHint(fmt.Errorf("nothing was changed: editor %q: %w", command, err), "set EDITOR")
	}

	return os.ReadFile(e.file)
}

// commentFindings renders findings as comments for the top of the file.
func commentFindings(findings diag.Findings) []byte {
	var b strings.Builder
	b.WriteString(findingPrefix + "Mend this and save, or leave the file as it is to give up:\n")
	for _, f := range findings {
		b.WriteString(
			findingPrefix + string(f.Severity) + ": " + strings.ReplaceAll(f.String(), "\n", " ") + "\n",
		)
	}

	return []byte(b.String())
}

// stripFindings removes those comments.
func stripFindings(text []byte) []byte {
	var out []byte
	for line := range bytes.Lines(text) {
		if !bytes.HasPrefix(line, []byte(findingPrefix)) {
			out = append(out, line...)
		}
	}

	return out
}
