// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/ec2"
)

// volumeLimits are the limits of a volume type: its size in GiB, its IOPS (default and maximum; 0 if they
// cannot be chosen), the highest IOPS for each GiB, and its default throughput in MiB/s. They are those of the EC2 user
// guide, "Amazon EBS volume types".
type volumeLimits struct{ minGiB, maxGiB, iops, maxIOPS, iopsPerGiB, throughput int64 }

// Limits of the throughput of gp3: in MiB/s, and how many IOPS each of them needs.
const (
	minThroughput = 125
	maxThroughput = 2000
	iopsPerMiBs   = 4
)

func volumeTypeLimits(kind string) (volumeLimits, bool) {
	l, ok := map[string]volumeLimits{
		"gp3":      {1, 65536, 3000, 80000, 500, 125},
		"gp2":      {1, 16384, 0, 0, 0, 0},
		"io1":      {4, 16384, 100, 64000, 50, 0},
		"io2":      {4, 65536, 100, 256000, 1000, 0},
		"st1":      {125, 16384, 0, 0, 0, 0},
		"sc1":      {125, 16384, 0, 0, 0, 0},
		"standard": {1, 1024, 0, 0, 0, 0},
	}[kind]

	return l, ok
}

// checkVolumeSize returns the limits of a volume's type and refuses a size outside them.
func checkVolumeSize(v *sdk.Volume) (volumeLimits, error) {
	l, ok := volumeTypeLimits(str(v.VolumeType))
	if !ok {
		return l, newErrorf(
			codeUnknownVolumeType,
			"Unsupported volume type '%s' for volume creation.",
			str(v.VolumeType),
		)
	}

	if *v.Size < l.minGiB || *v.Size > l.maxGiB {
		return l, newErrorf(
			codeInvalidParameterValue,
			"Volume of %dGiB is out of the bounds of volume type %s (%d-%dGiB)",
			*v.Size,
			str(v.VolumeType),
			l.minGiB,
			l.maxGiB,
		)
	}

	return l, nil
}

// checkPerformance refuses IOPS and throughput that the type does not support.
func (l volumeLimits) checkPerformance(v *sdk.Volume, iops, throughput *int64) error {
	switch {
	case iops != nil && l.maxIOPS == 0:
		return newErrorf(
			codeInvalidParameterCombination,
			"The parameter iops is not supported for %s volumes.",
			str(v.VolumeType),
		)

	case iops == nil && strings.HasPrefix(str(v.VolumeType), "io"):
		return newErrorf(
			codeInvalidParameterCombination,
			"The parameter iops must be specified for %s volumes.",
			str(v.VolumeType),
		)

	case throughput != nil && l.throughput == 0:
		return newErrorf(
			codeInvalidParameterCombination,
			"The parameter throughput is not supported for %s volumes.",
			str(v.VolumeType),
		)

	}

	if err := l.checkIOPS(v, iops); err != nil {
		return err
	}

	return l.checkThroughput(iops, throughput)
}

// checkIOPS refuses IOPS outside of what the type and the size of a volume allow.
func (l volumeLimits) checkIOPS(v *sdk.Volume, iops *int64) error {
	switch {
	case iops == nil:
		return nil
	case *iops < l.iops:
		return newErrorf(
			codeInvalidParameterValue,
			"Volume iops of %d is too low; minimum is %d.",
			*iops,
			l.iops,
		)
	case *iops > l.maxIOPS:
		return newErrorf(
			codeInvalidParameterValue,
			"Volume iops of %d is too high; maximum is %d.",
			*iops,
			l.maxIOPS,
		)

	case *iops > max(l.iops, l.iopsPerGiB**v.Size): // what is included does not depend on the size
		return newErrorf(
			codeInvalidParameterValue,
			"Iops to volume size ratio of %f is too high; maximum is %d",
			float64(*iops)/float64(*v.Size),
			l.iopsPerGiB,
		)
	}

	return nil
}

// checkThroughput refuses a throughput of gp3 outside of its limits, or that needs more IOPS.
func (l volumeLimits) checkThroughput(iops, throughput *int64) error {
	if throughput == nil {
		return nil
	}

	if *throughput < minThroughput || *throughput > maxThroughput {
		return newErrorf(
			codeInvalidParameterValue,
			"Throughput of %d is out of bounds (%d-%d).",
			*throughput,
			minThroughput,
			maxThroughput,
		)
	}

	available := l.iops
	if iops != nil {
		available = *iops
	}

	if *throughput*iopsPerMiBs > available {
		return newErrorf(
			codeInvalidParameterValue,
			"Throughput (MiBps) to iops ratio of %f is too high; maximum is %f MiBps per iops.",
			float64(*throughput)/float64(available),
			1.0/iopsPerMiBs,
		)
	}

	return nil
}

// setPerformance sets the requested IOPS and throughput of a volume, or the defaults of its type.
func (l volumeLimits) setPerformance(v *sdk.Volume, iops, throughput *int64) {
	v.Iops = iops
	v.Throughput = throughput
	switch {
	case iops != nil:
	case l.maxIOPS > 0:
		v.Iops = new(l.iops)
	case str(v.VolumeType) == "gp2":
		v.Iops = new(min(max(*v.Size*3, 100), 16000))
	}

	if throughput == nil && l.throughput > 0 {
		v.Throughput = new(l.throughput)
	}
}

// keepPerformance returns the requested performance, and the present one where the request sets none.
func (l volumeLimits) keepPerformance(
	v *sdk.Volume,
	iops, throughput *int64,
) (newIOPS, newThroughput *int64) {
	if iops == nil && l.maxIOPS > 0 {
		iops = v.Iops
	}

	if throughput == nil && l.throughput > 0 {
		throughput = v.Throughput
	}

	return iops, throughput
}
