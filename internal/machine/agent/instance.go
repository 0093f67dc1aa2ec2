// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
)

// Instance holds this machine's properties as reported by the metadata service and the kernel.
type Instance struct {
	// ID is the instance id.
	ID string
	// Zone is the availability zone.
	Zone string
	// Type is the instance type, such as m7i.large.
	Type string
	// Lifecycle is spot, on-demand, or another purchasing option, as in instance-life-cycle.
	Lifecycle string
	// Hostname is the host name in the metadata. It is only compared with that of an earlier start: in a VPC whose
	// DHCP options have a domain name it is not the name in EC2.
	Hostname string
	// Name is the node's name: the private DNS name in EC2, in lower case. [Agent.joinCluster] and
	// [takeNodeName] set it; it is empty before.
	Name string
	// Address is the private IPv4 address.
	Address netip.Addr
	// MemoryMiB is the memory size from /proc/meminfo.
	MemoryMiB int
	// CPUs is the number of processors.
	CPUs int
}

// Metadata is the instance metadata service (IMDS).
type Metadata interface {
	GetMetadata(
		context.Context,
		*imds.GetMetadataInput,
		...func(*imds.Options),
	) (*imds.GetMetadataOutput, error)
}

// ReadInstance reads the instance's properties from the metadata service and the kernel.
func ReadInstance(ctx context.Context, meta Metadata, root *HostFS) (Instance, error) {
	got := map[string]string{}
	paths := []string{
		"instance-id",
		"placement/availability-zone",
		"instance-type",
		"local-hostname",
		"local-ipv4",
		"instance-life-cycle",
	}

	for _, path := range paths {
		out, err := meta.GetMetadata(ctx, &imds.GetMetadataInput{Path: path})
		if err != nil {
			return Instance{}, fmt.Errorf("read instance metadata %s: %w", path, err)
		}

		body, err := io.ReadAll(out.Content)
		if err != nil {
			return Instance{}, fmt.Errorf("read instance metadata %s: %w", path, err)
		}

		// If a VPC has several domain names, all but the first follow local-hostname, separated by spaces.
		first, _, _ := strings.Cut(strings.TrimSpace(string(body)), " ")
		got[path] = first
	}

	address, err := netip.ParseAddr(got["local-ipv4"])
	if err != nil {
		return Instance{}, fmt.Errorf("parse instance metadata local-ipv4: %w", err)
	}

	memory, err := memoryMiB(root)
	if err != nil {
		return Instance{}, err
	}

	return Instance{
		ID:        got["instance-id"],
		Zone:      got["placement/availability-zone"],
		Type:      got["instance-type"],
		Lifecycle: got["instance-life-cycle"],
		Hostname:  strings.ToLower(got["local-hostname"]),
		Address:   address,
		MemoryMiB: memory,
		CPUs:      runtime.NumCPU(),
	}, nil
}

func memoryMiB(root *HostFS) (int, error) {
	body, err := os.ReadFile(root.Path("/proc/meminfo"))
	if err != nil {
		return 0, fmt.Errorf("read memory size: %w", err)
	}

	for lines := bufio.NewScanner(bytes.NewReader(body)); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 1 && fields[0] == "MemTotal:" {
			kib, err := strconv.Atoi(fields[1])
			if err != nil {
				return 0, fmt.Errorf("parse MemTotal in /proc/meminfo: %w", err)
			}

			return kib / 1024, nil
		}
	}

	return 0, errors.New("read memory size: no MemTotal in /proc/meminfo")
}
