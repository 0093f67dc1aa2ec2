// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
)

// showReview prints what a request is about to do.
func (a *app) showReview(review cluster.Review) error {
	if review.Kind == cluster.ReviewDestroy && review.IsEmpty() {
		a.printDeletionNotes(review.Deletion)
		return nil
	}

	if !review.Destroy {
		a.printStackState(review.Stack)
	}

	if err := a.printPlan(formatTable, review); err != nil {
		return err
	}

	a.printObjectCounts(review)
	a.printDeletionNotes(review.Deletion)

	return nil
}

// approve asks the question of a review.
func (a *app) approve(_ context.Context, review cluster.Review) error {
	switch review.Kind {
	case cluster.ReviewApplyStack:
		return a.confirm("Apply this to cluster " + review.Cluster + " by CloudFormation?")
	case cluster.ReviewContinueRollback:
		a.printStackState(review.Stack)
		return a.confirm("Go on with the rollback of stack " + review.Stack.Name + "?")
	case cluster.ReviewDestroy:
		return a.confirm("Delete cluster " + review.Cluster + " with all its data?")
	case cluster.ReviewDestroyStack:
		return a.confirm("Destroy cluster " + review.Cluster + " and its stack?")
	case cluster.ReviewDeleteGroup:
		return a.confirm("Delete group " + review.Group + " of cluster " + review.Cluster + "?")
	case cluster.ReviewApply:
	}

	return a.confirm("Apply this to cluster " + review.Cluster + "?")
}

// printPlan prints a plan as a table or as a document.
func (a *app) printPlan(format string, review cluster.Review) error {
	if format != formatTable {
		return a.printValue(format, review.Document())
	}

	fmt.Fprint(a.Stdout, formatUnsigned(review)+formatObjects(review))

	if err := review.Plan.Print(a.Stdout, len(review.Unpublished)); err != nil {
		return err
	}

	costPrinter{a}.printLine(review)

	return nil
}

// formatUnsigned renders the documents that an apply signs, one a line.
func formatUnsigned(review cluster.Review) string {
	if len(review.Unsigned) == 0 {
		return ""
	}

	var b strings.Builder
	b.WriteString("Documents that nobody has signed, and that apply signs:\n")
	for _, document := range review.Unsigned {
		sum := cmp.Or(document.SHA256, "unknown: you may not read it")
		fmt.Fprintf(&b, "    %s: sha256 %s\n", document.Key, sum)
	}

	return b.String()
}

// formatObjects renders the objects that are published, one a line. Publishing interrupts nothing: what machines make of a
// document is said of their launch templates.
func formatObjects(review cluster.Review) string {
	effect := ""
	if !review.Plan.OnlyAdds() {
		effect = "  # interrupts nothing"
	}

	var b strings.Builder
	for _, key := range review.Unpublished {
		fmt.Fprintf(&b, "  + object/%s%s\n", strings.TrimPrefix(key, review.Cluster+"/machine/"), effect)
	}

	return b.String()
}

// printStackState prints what must happen to the stack before its resources can change.
func (a *app) printStackState(s cluster.StackReview) {
	switch {
	case s.Recreate:
		a.printMessage(
			"stack %s is in %s: delete it with its resources, and create it again",
			s.Name,
			s.Info.Status,
		)

	case s.IsStuck():
		a.printMessage(
			"stack %s is in %s: continue its rollback before anything else",
			s.Name,
			s.Info.Status,
		)
	}
}

// printObjectCounts prints how many objects a deletion deletes from each store.
func (a *app) printObjectCounts(review cluster.Review) {
	for _, set := range review.Deletion.Objects {
		if review.Kind == cluster.ReviewDeleteGroup {
			a.printMessage("and the manifest %s in %s", strings.Join(set.Keys, ", "), set.Store.URL())
			continue
		}

		a.printMessage(
			"and %d objects below %s/%s/",
			len(set.Keys),
			strings.TrimSuffix(set.Store.URL(), "/"),
			review.Cluster,
		)
	}
}

// printDeletionNotes prints what the plan of a deletion does not show: retained data, and what blocks the
// deletion.
func (a *app) printDeletionNotes(d cluster.Deletion) {
	for _, step := range d.RetainedSteps {
		a.printMessage(
			"%s (%s) is kept in AWS, with the state that its data needs: --destroy-data deletes both",
			step.Addr,
			step.ID,
		)
	}

	for _, k := range d.Retained {
		what := k.Resource.Kind().Name
		if v, ok := k.Resource.(awskind.Volume); ok {
			what = fmt.Sprintf("volume, %d GiB", v.Size)
		}

		why := "of " + k.Owner
		if k.Owner == "" {
			why = "that encrypts what is kept"
		}

		a.printMessage("kept: %s (%s %s); --destroy-data removes it", k.ID, what, why)
	}

	for _, b := range d.Blockers {
		printLabelledMessage(a, yellow, "warning:", fmt.Sprintf(
			"%s is in the cluster's network but does not belong to the cluster: AWS will refuse to delete the resources that it uses", b,
		))
	}
}
