// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"slices"

	sdk "github.com/aws/aws-sdk-go/service/ec2"
)

func (s instanceHandlers) describeInstanceStatus(
	in *sdk.DescribeInstanceStatusInput,
) (*sdk.DescribeInstanceStatusOutput, error) {
	for _, id := range in.InstanceIds {
		if _, err := s.st.findInstance(id); err != nil {
			return nil, err
		}
	}

	shown := map[string]*sdk.Instance{}

	for id, i := range s.st.Instances {
		if isTrue(in.IncludeAllInstances) || str(i.State.Name) == sdk.InstanceStateNameRunning {
			shown[id] = i
		}
	}

	wanted := slices.DeleteFunc(
		slices.Clone(in.InstanceIds),
		func(id *string) bool { return shown[str(id)] == nil },
	)
	if len(in.InstanceIds) > 0 && len(wanted) == 0 {
		return &sdk.DescribeInstanceStatusOutput{InstanceStatuses: []*sdk.InstanceStatus{}}, nil
	}

	got, next, err := listResources(
		s.Service,
		shown,
		describeQuery{wanted, in.Filters, in.MaxResults, in.NextToken},
		resourceLister[sdk.Instance]{codeInvalidInstanceIDNotFound, "instance ID", s.statusFilterValues},
	)
	out := &sdk.DescribeInstanceStatusOutput{NextToken: next, InstanceStatuses: []*sdk.InstanceStatus{}}
	for _, i := range got {
		out.InstanceStatuses = append(out.InstanceStatuses, s.st.instanceStatus(i))
	}

	return out, err
}

// statusFilterValues returns the values of a filter of DescribeInstanceStatus, or false if it knows no such filter.
func (s instanceHandlers) statusFilterValues(i *sdk.Instance, name string) ([]string, bool) {
	switch name {
	case "availability-zone", "instance-state-name", "instance-state-code":
		return s.instanceFilterValues(i, name)
	case "instance-status.status", "instance-status.reachability":
		return []string{s.st.instanceHealth(str(i.InstanceId))}, true
	case "system-status.status", "system-status.reachability":
		return []string{"ok"}, true
	case "event.code", "event.description", "event.instance-event-id":
		return nil, true // there are no scheduled events
	}

	return nil, false
}

// instanceHealth returns the instance status check: ok, impaired or not-applicable.
func (st *serviceState) instanceHealth(id string) string {
	i := st.Instances[id]
	x := st.Extra[id]
	switch {
	case i == nil || x == nil || str(i.State.Name) != sdk.InstanceStateNameRunning:
		return "not-applicable"
	case x.Impaired:
		return "impaired"
	}

	return "ok"
}

func (st *serviceState) instanceStatus(i *sdk.Instance) *sdk.InstanceStatus {
	mine := st.instanceHealth(str(i.InstanceId))
	summary := func(status string) *sdk.InstanceStatusSummary {
		reach := map[string]string{"ok": "passed", "impaired": "failed"}[status]
		out := &sdk.InstanceStatusSummary{Status: new(status)}
		if reach != "" {
			out.Details = []*sdk.InstanceStatusDetails{{Name: new("reachability"), Status: new(reach)}}
		}

		return out
	}

	system := mine
	if mine == "impaired" {
		system = "ok"
	}

	return &sdk.InstanceStatus{
		InstanceId:       i.InstanceId,
		AvailabilityZone: i.Placement.AvailabilityZone,
		InstanceState:    i.State,
		InstanceStatus:   summary(mine),
		SystemStatus:     summary(system),
	}
}
