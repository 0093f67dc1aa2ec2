// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	sdk "github.com/aws/aws-sdk-go/service/ec2"
)

// volumeLimits are the limits of a volume type: its size in GiB, its IOPS (default and maximum; 0 if they
// cannot be chosen) and its default throughput in MiB/s.
type volumeLimits struct{ minGiB, maxGiB, iops, maxIOPS, throughput int64 }

func volumeTypeLimits(kind string) (volumeLimits, bool) {
	l, ok := map[string]volumeLimits{
		"gp3":      {1, 16384, 3000, 16000, 125},
		"gp2":      {1, 16384, 0, 0, 0},
		"io1":      {4, 16384, 100, 64000, 0},
		"io2":      {4, 65536, 100, 256000, 0},
		"st1":      {125, 16384, 0, 0, 0},
		"sc1":      {125, 16384, 0, 0, 0},
		"standard": {1, 1024, 0, 0, 0},
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

	case throughput != nil && l.throughput == 0:
		return newErrorf(
			codeInvalidParameterCombination,
			"The parameter throughput is not supported for %s volumes.",
			str(v.VolumeType),
		)

	case iops != nil && *iops < l.iops:
		return newErrorf(
			codeInvalidParameterValue,
			"Volume iops of %d is too low; minimum is %d.",
			*iops,
			l.iops,
		)
	case iops != nil && *iops > l.maxIOPS:
		return newErrorf(
			codeInvalidParameterValue,
			"Volume iops of %d is too high; maximum is %d.",
			*iops,
			l.maxIOPS,
		)

	case throughput != nil && (*throughput < 125 || *throughput > 1000):
		return newErrorf(
			codeInvalidParameterValue,
			"Throughput of %d is out of bounds (125-1000).",
			*throughput,
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
