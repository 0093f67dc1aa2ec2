// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	scalingtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// scalingGroups returns the Auto Scaling groups of the cluster that should have machines, as they are now.
func (l *topologyLab) scalingGroups() []scalingtypes.AutoScalingGroup {
	l.Helper()
	var out []scalingtypes.AutoScalingGroup
	pages := autoscaling.NewDescribeAutoScalingGroupsPaginator(autoscaling.NewFromConfig(l.config(caller{})), &autoscaling.DescribeAutoScalingGroupsInput{
		Filters: []scalingtypes.Filter{{Name: sdk.String("tag:slipway.dev/cluster"), Values: []string{l.name()}}},
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(l.Context())
		l.check(err)

		out = append(out, page.AutoScalingGroups...)
	}

	return slices.DeleteFunc(out, func(g scalingtypes.AutoScalingGroup) bool { return *g.DesiredCapacity == 0 })
}

// rollMachines makes the calls of a rolling update as the operator, for a machine of each group: it is detached and ended,
// and its replacement is ended by the group. The rest of a rolling update needs a Kubernetes API.
func (l *topologyLab) rollMachines(operator caller) {
	l.Helper()
	root := autoscaling.NewFromConfig(l.config(caller{}))
	scaling := autoscaling.NewFromConfig(l.config(operator))
	machines := ec2.NewFromConfig(l.config(operator))

	for _, g := range l.scalingGroups() {
		group := *g.AutoScalingGroupName
		id := l.awaitInstance(root, group)
		_, err := machines.GetConsoleOutput(l.Context(), &ec2.GetConsoleOutputInput{InstanceId: &id})
		l.check(err)
		_, err = machines.CreateTags(l.Context(), &ec2.CreateTagsInput{
			Resources: []string{id}, Tags: []types.Tag{{Key: sdk.String("slipway.dev/detached"), Value: sdk.String("2026-11-26T12:00:00Z")}},
		})
		l.check(err)
		_, err = scaling.DetachInstances(l.Context(), &autoscaling.DetachInstancesInput{
			AutoScalingGroupName: &group, InstanceIds: []string{id}, ShouldDecrementDesiredCapacity: sdk.Bool(false),
		})
		l.check(err)
		_, err = machines.TerminateInstances(l.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{id}})
		l.check(err)
		_, err = scaling.DescribeScalingActivities(l.Context(), &autoscaling.DescribeScalingActivitiesInput{AutoScalingGroupName: &group})
		l.check(err)

		l.endInGroup(scaling, group, l.awaitInstance(root, group))

		in := &autoscaling.UpdateAutoScalingGroupInput{AutoScalingGroupName: &group}
		if g.MixedInstancesPolicy == nil { // a rollback sets the earlier version of either
			in.LaunchTemplate = withoutName(g.LaunchTemplate)
		} else {
			in.MixedInstancesPolicy = g.MixedInstancesPolicy
			template := g.MixedInstancesPolicy.LaunchTemplate
			template.LaunchTemplateSpecification = withoutName(template.LaunchTemplateSpecification)
		}

		_, err = scaling.UpdateAutoScalingGroup(l.Context(), in)
		l.check(err)
		l.awaitInstance(root, group)
	}

	l.readTemplates(operator)
}

// withoutName returns a specification with the id of its template alone: AWS refuses a name next to it.
func withoutName(t *scalingtypes.LaunchTemplateSpecification) *scalingtypes.LaunchTemplateSpecification {
	return &scalingtypes.LaunchTemplateSpecification{LaunchTemplateId: t.LaunchTemplateId, Version: t.Version}
}

// readTemplates lists launch templates and their versions, as a rolling update does.
func (l *topologyLab) readTemplates(operator caller) {
	l.Helper()
	api := ec2.NewFromConfig(l.config(operator))
	found, err := api.DescribeLaunchTemplates(l.Context(), &ec2.DescribeLaunchTemplatesInput{
		Filters: []types.Filter{{Name: sdk.String("tag:slipway.dev/cluster"), Values: []string{l.name()}}},
	})
	l.check(err)
	for _, template := range found.LaunchTemplates {
		_, err := api.DescribeLaunchTemplateVersions(l.Context(), &ec2.DescribeLaunchTemplateVersionsInput{
			LaunchTemplateId: template.LaunchTemplateId, Versions: []string{"1"},
		})
		l.check(err)
	}
}

// endInGroup ends a machine, whose group replaces it, and then the wait for its drain, if the group has a hook.
func (l *topologyLab) endInGroup(scaling *autoscaling.Client, group, id string) {
	l.Helper()
	_, err := scaling.TerminateInstanceInAutoScalingGroup(l.Context(), &autoscaling.TerminateInstanceInAutoScalingGroupInput{
		InstanceId: &id, ShouldDecrementDesiredCapacity: sdk.Bool(false),
	})
	l.check(err)
	l.completeHook(scaling, group, id)
}

// completeHook ends the wait for a drain. Auto Scaling may not wait: then that it is no denial is enough.
func (l *topologyLab) completeHook(scaling *autoscaling.Client, group, id string) {
	l.Helper()
	_, err := scaling.CompleteLifecycleAction(l.Context(), &autoscaling.CompleteLifecycleActionInput{
		AutoScalingGroupName:  &group,
		LifecycleHookName:     sdk.String(node.TerminationHook),
		LifecycleActionResult: sdk.String("CONTINUE"),
		InstanceId:            &id,
	})
	l.permitted("complete the hook of "+group, err)
}

// permitted checks that an error is not that of a denial.
func (l *lab) permitted(what string, err error) {
	l.Helper()
	var refused smithy.APIError
	if asAPIError(err, &refused) && isDenial(refused.ErrorCode()) {
		l.Errorf("%s: %v", what, err)
	}
}

// workerGroups returns the names of the Auto Scaling groups of workers.
func (l *topologyLab) workerGroups() []string {
	l.Helper()
	var out []string
	for _, g := range l.scalingGroups() {
		isWorkers := slices.ContainsFunc(g.Tags, func(t scalingtypes.TagDescription) bool {
			return *t.Key == "slipway.dev/role" && *t.Value == "worker"
		})
		if isWorkers {
			out = append(out, *g.AutoScalingGroupName)
		}
	}

	return out
}

// declaredActions returns the actions of the calls to AWS that packages declare in interfaces, sorted.
func declaredActions(t *testing.T, folders ...string) []string {
	t.Helper()
	call := regexp.MustCompile(`(?m)^\t(\w+)\(\s*context\.Context,\s*\*(\w+)\.\w+Input`)
	paginated := regexp.MustCompile(`(?m)^\t(\w+)\.(\w+)APIClient$`) // an interface of the SDK
	var out []string

	for _, folder := range folders {
		files, err := filepath.Glob(folder + "/*.go")
		if err != nil || len(files) == 0 {
			t.Fatal(err, files)
		}

		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}

			for _, found := range call.FindAllSubmatch(text, -1) {
				out = append(out, string(bytes.Join([][]byte{found[2], found[1]}, []byte(":"))))
			}

			for _, found := range paginated.FindAllSubmatch(text, -1) {
				out = append(out, string(bytes.Join(found[1:], []byte(":"))))
			}
		}
	}

	slices.Sort(out)
	ofOthers := func(action string) bool {
		return !strings.HasPrefix(action, "ec2:") && !strings.HasPrefix(action, "autoscaling:") && !strings.HasPrefix(action, "cloudformation:")
	}

	return slices.DeleteFunc(slices.Compact(out), ofOthers)
}
