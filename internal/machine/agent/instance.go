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

// Instance is what the machine is, as the metadata service tells it.
type Instance struct {
	ID, Zone, Type string
	// Lifecycle is spot for a spot machine; else on-demand, or another way to pay.
	Lifecycle string
	// Name is the private DNS name, and the node's name.
	Name    string
	Address netip.Addr
	// MemoryMiB and CPUs as the kernel tells them.
	MemoryMiB, CPUs int
}

// Metadata is the metadata service.
type Metadata interface {
	GetMetadata(
		context.Context,
		*imds.GetMetadataInput,
		...func(*imds.Options),
	) (*imds.GetMetadataOutput, error)
}

// ReadInstance asks the metadata service and the kernel.
func ReadInstance(ctx context.Context, meta Metadata, root *HostFS) (Instance, error) {
	got := map[string]string{}
	for _, path := range []string{"instance-id", "placement/availability-zone", "instance-type", "local-hostname", "local-ipv4", "instance-life-cycle"} {
		out, err := meta.GetMetadata(ctx, &imds.GetMetadataInput{Path: path})
		if err != nil {
			return Instance{}, fmt.Errorf("metadata %s: %w", path, err)
		}

		body, err := io.ReadAll(out.Content)
		if err != nil {
			return Instance{}, fmt.Errorf("metadata %s: %w", path, err)
		}

		// In a VPC with several domain names the service lists them, apart by a space; EC2 shows the first.
		first, _, _ := strings.Cut(strings.TrimSpace(string(body)), " ")
		got[path] = first
	}

	address, err := netip.ParseAddr(got["local-ipv4"])
	if err != nil {
		return Instance{}, fmt.Errorf("metadata local-ipv4: %w", err)
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
		Name:      strings.ToLower(got["local-hostname"]),
		Address:   address,
		MemoryMiB: memory,
		CPUs:      runtime.NumCPU(),
	}, nil
}

func memoryMiB(root *HostFS) (int, error) {
	body, err := os.ReadFile(root.Path("/proc/meminfo"))
	if err != nil {
		return 0, fmt.Errorf("memory size: %w", err)
	}

	for lines := bufio.NewScanner(bytes.NewReader(body)); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 1 && fields[0] == "MemTotal:" {
			kib, err := strconv.Atoi(fields[1])
			if err != nil {
				return 0, fmt.Errorf("memory size: %w", err)
			}

			return kib / 1024, nil
		}
	}

	return 0, errors.New("memory size: no MemTotal in /proc/meminfo")
}
