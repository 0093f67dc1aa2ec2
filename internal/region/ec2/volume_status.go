// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	sdk "github.com/aws/aws-sdk-go/service/ec2"
)

// statusOfVolume is that of all volumes here: their disks work, and none is loaded from a snapshot.
const statusOfVolume = sdk.VolumeStatusInfoStatusOk

// volumeStatusFilterValues returns the values of the filters of DescribeVolumeStatus that do not
// depend on events and actions, which volumes here do not have.
func volumeStatusFilterValues(v *sdk.Volume, name string) ([]string, bool) {
	out, known := map[string][]string{
		"availability-zone":            {str(v.AvailabilityZone)},
		"volume-status.status":         {statusOfVolume},
		"volume-status.details-name":   {sdk.VolumeStatusNameIoEnabled, sdk.VolumeStatusNameIoPerformance},
		"volume-status.details-status": {ioEnabled, ioPerformance},
		"action.code":                  nil,
		"action.description":           nil,
		"action.event-id":              nil,
		"event.description":            nil,
		"event.event-id":               nil,
		"event.event-type":             nil,
		"event.not-after":              nil,
		"event.not-before":             nil,
	}[name]

	return out, known
}

// The details of the status of a volume: it is read and written, and its performance is not
// measured.
const (
	ioEnabled     = "passed"
	ioPerformance = "not-applicable"
)

func (s volumeHandlers) describeVolumeStatus(in *sdk.DescribeVolumeStatusInput) (*sdk.DescribeVolumeStatusOutput, error) {
	got, next, err := listResources(
		s.Service,
		s.st.Volumes,
		describeQuery{in.VolumeIds, in.Filters, in.MaxResults, in.NextToken},
		resourceLister[sdk.Volume]{codeInvalidVolumeNotFound, "volume", volumeStatusFilterValues},
	)

	out := &sdk.DescribeVolumeStatusOutput{NextToken: next}
	for _, v := range got {
		out.VolumeStatuses = append(out.VolumeStatuses, &sdk.VolumeStatusItem{
			VolumeId:         v.VolumeId,
			AvailabilityZone: v.AvailabilityZone,
			Actions:          []*sdk.VolumeStatusAction{},
			Events:           []*sdk.VolumeStatusEvent{},
			VolumeStatus: &sdk.VolumeStatusInfo{
				Status: new(statusOfVolume),
				Details: []*sdk.VolumeStatusDetails{
					{Name: new(sdk.VolumeStatusNameIoEnabled), Status: new(ioEnabled)},
					{Name: new(sdk.VolumeStatusNameIoPerformance), Status: new(ioPerformance)},
				},
			},
		})
	}

	return out, err
}
