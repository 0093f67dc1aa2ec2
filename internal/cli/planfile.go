// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/slipway-k8s/slipway/internal/cluster/apply"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/planfile"
	"github.com/slipway-k8s/slipway/internal/lib/privatefile"
)

// isPlanFile reports whether an argument of apply is a file: no cluster name has a dot or a slash.
func isPlanFile(arg string) bool { return strings.ContainsAny(arg, "./\\") }

// toolVersion returns the version and the commit, which distinguishes also development builds.
func toolVersion(stamped string) string {
	v := buildVersion(stamped)
	return strings.TrimSpace(v.Version + " " + v.Commit)
}

// savePlanFile writes a plan into a file that only its owner can read.
func (a *app) savePlanFile(ctx context.Context, planned *apply.Planned, path string) error {
	f, err := planned.File(ctx)
	if err != nil {
		return err
	}

	body, err := f.Encode()
	if err != nil {
		return err
	}

	if err := privatefile.Write(path, body); err != nil {
		return fmt.Errorf("save the plan: %w", err)
	}

	arg := path
	if !isPlanFile(path) {
		arg = "./" + path
	}

	a.printMessage("saved the plan in %s; to do exactly this: slipway apply %s --yes", path, arg)

	return nil
}

func readPlanFile(path string) (planfile.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return planfile.File{}, withHint(
			fmt.Errorf("read the plan: %w", err),
			"an argument with a dot or a slash is a saved plan; create one with: slipway plan NAME --out FILE",
		)
	}

	defer func() { _ = f.Close() }() // opened for reading
	body, err := io.ReadAll(io.LimitReader(f, planfile.MaxSize))
	if err != nil {
		return planfile.File{}, fmt.Errorf("read the plan: %w", err)
	}

	saved, err := planfile.Parse(body)
	if err != nil {
		return saved, fmt.Errorf("the file %s %w", path, err)
	}

	return saved, nil
}

// checkPlanFlags refuses flags that name another cluster or region than the plan does.
func (a *app) checkPlanFlags(saved planfile.File, path string, o clusterOptions) error {
	name := saved.Identity.Cluster
	if o.name != "" && o.name != name {
		return withHint(
			fmt.Errorf("the plan %s is for cluster %s, not %s", path, name, o.name),
			"omit --name",
		)
	}

	if a.region != "" && a.region != saved.Identity.Region {
		return withHint(
			fmt.Errorf("the plan %s is for region %s, not %s", path, saved.Identity.Region, a.region),
			"omit --region",
		)
	}

	return clusterstate.CheckName(name)
}
