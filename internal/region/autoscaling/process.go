// SPDX-License-Identifier: Apache-2.0

package autoscaling

import (
	"maps"
	"slices"

	sdk "github.com/aws/aws-sdk-go/service/autoscaling"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// scalingProcesses returns the processes that can be suspended.
func scalingProcesses() []string {
	return []string{
		"Launch",
		"Terminate",
		"AddToLoadBalancer",
		"AlarmNotification",
		"AZRebalance",
		"HealthCheck",
		"InstanceRefresh",
		"ReplaceUnhealthy",
		"ScheduledActions",
	}
}

// selectProcesses returns the processes that a request names, or all of them if it names none.
func selectProcesses(in *sdk.ScalingProcessQuery) ([]string, error) {
	if len(in.ScalingProcesses) == 0 {
		return scalingProcesses(), nil
	}

	for _, p := range sdkshape.Strings(in.ScalingProcesses) {
		if !slices.Contains(scalingProcesses(), p) {
			return nil, validationError("%s is not a valid process type", p)
		}
	}

	return sdkshape.Strings(in.ScalingProcesses), nil
}

// updateSuspendedProcesses calls change for each process that a request names. change adds it to or removes
// it from the suspended processes of the group, which map a process to the reason.
func (s *Service) updateSuspendedProcesses(
	in *sdk.ScalingProcessQuery,
	change func(have map[string]string, p string),
) error {
	g, err := s.findGroup(in.AutoScalingGroupName)
	if err != nil {
		return err
	}

	names, err := selectProcesses(in)
	if err != nil {
		return err
	}

	have := map[string]string{}
	for _, p := range g.Shape.SuspendedProcesses {
		have[sdkshape.String(p.ProcessName)] = sdkshape.String(p.SuspensionReason)
	}

	for _, p := range names {
		change(have, p)
	}

	g.Shape.SuspendedProcesses = []*sdk.SuspendedProcess{}

	for _, p := range slices.Sorted(maps.Keys(have)) {
		g.Shape.SuspendedProcesses = append(
			g.Shape.SuspendedProcesses,
			&sdk.SuspendedProcess{ProcessName: new(p), SuspensionReason: new(have[p])},
		)
	}

	return nil
}

func (s *Service) suspendProcesses(in *sdk.ScalingProcessQuery) (*sdk.SuspendProcessesOutput, error) {
	at := s.cfg.Now().UTC().Format("2006-01-02T15:04:05Z")
	err := s.updateSuspendedProcesses(
		in,
		func(have map[string]string, p string) { have[p] = "User suspended at " + at },
	)

	return &sdk.SuspendProcessesOutput{}, err
}

func (s *Service) resumeProcesses(in *sdk.ScalingProcessQuery) (*sdk.ResumeProcessesOutput, error) {
	err := s.updateSuspendedProcesses(in, func(have map[string]string, p string) { delete(have, p) })
	return &sdk.ResumeProcessesOutput{}, err
}

// isSuspended reports whether a process of the group is suspended.
func (g *group) isSuspended(process string) bool {
	return slices.ContainsFunc(
		g.Shape.SuspendedProcesses,
		func(p *sdk.SuspendedProcess) bool { return sdkshape.String(p.ProcessName) == process },
	)
}
